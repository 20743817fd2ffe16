"""Limits of jobs, lists and calls in a ZooKeeper ensemble, each with its reason."""

from typing import Final

# A ZooKeeper server closes the connection of a client whose request exceeds `jute.maxbuffer`, by default one byte less
# than a mebibyte. A job is submitted in one transaction, and one with the largest output and labels still fits.
TRANSACTION_BYTES_MAX: Final = 1_000_000
# Names in one list of waiting jobs: a worker reads one such list to find its next jobs, however many jobs wait.
BUCKET_JOBS: Final = 256
# The ensemble responds within milliseconds, and elects a leader within a second or two.
CALL_MS: Final = 5_000
# The client library pings after a third of the session timeout, plus or minus 0.4 s: a shorter session would expire
# without a fault.
SESSION_MS_MIN: Final = 2_000
