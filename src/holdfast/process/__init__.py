"""Processes: supervisor, children, signals, private directories and a private PostgreSQL."""
