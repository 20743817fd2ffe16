"""The worker: runs jobs that a backend leases to it."""
