"""Clients that send requests throughout a run, and record requests and responses."""
