"""Beside the peers: other job queues for Python and this one, measured alike in one run."""
