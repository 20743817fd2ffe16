"""Ways to keep jobs and hand them out, all behind the ports in `ports.py`."""
