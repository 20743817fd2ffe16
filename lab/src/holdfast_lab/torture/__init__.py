"""Runs real processes of a topology under load and faults drawn from a seed, and records a history for the checker."""
