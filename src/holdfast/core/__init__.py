"""The pure heart: what a job is, what may happen to it, and who decides.

Nothing in this package does I/O, reads a clock, draws a random number or logs. Time arrives inside a
command, randomness (ids) arrives inside a command, and retry jitter is derived from the job itself, so the
same events always build the same state.
"""
