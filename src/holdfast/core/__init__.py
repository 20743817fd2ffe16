"""The core of Holdfast: jobs, their states, and the decisions about them.

This package does no I/O, reads no clock, draws no random numbers and does not log. Time and random ids arrive inside
commands. Retry jitter is derived from the job. So the same events always build the same state.
"""
