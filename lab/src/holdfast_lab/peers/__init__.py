"""Other job queues for Python and Holdfast, measured alike in one run."""
