"""Shared parts of all measurements: machine, child processes, rounds, timing, numbers, tables and plot style."""
