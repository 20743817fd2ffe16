"""Executors, which run attempts on the loop, in threads or in child processes."""
