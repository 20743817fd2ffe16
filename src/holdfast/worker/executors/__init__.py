"""Where attempts run: on the loop, in threads, in child processes."""
