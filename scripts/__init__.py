"""Tools of the repository; run each as `python -m scripts.NAME`."""
