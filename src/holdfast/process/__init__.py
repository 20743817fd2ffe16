"""Processes: supervisors, children, signals, private directories and private engines."""
