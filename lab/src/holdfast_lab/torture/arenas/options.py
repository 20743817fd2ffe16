"""Options of the processes of all arenas: lost processes are noticed soon, and calls are not rate-limited.

The retention of ended jobs and the limit of losses are the product's defaults. So a run of hours removes no job, unless
the product accepts a clock that is wrong by days.
"""

from collections.abc import Mapping

#: A stopped or dead worker is noticed within two seconds.
LEASE_MS = 2_000
HEARTBEAT_MS = 300
WORKER_TIMEOUT_MS = 1_500
SLOTS = 4

Options = Mapping[str, str]

LOGGING: Options = {"log-level": "info", "log-format": "json"}
UNLIMITED: Options = {"rate-limit": "0"}
#: Small segments, early snapshots and a short history: so kills hit many moments between two of them, and much of the
#: journal is trimmed during the run.
LEDGER: Options = {
    "lease-ms": str(LEASE_MS),
    "heartbeat-ms": str(HEARTBEAT_MS),
    "worker-timeout-ms": str(WORKER_TIMEOUT_MS),
    "history-ms": "5000",
    "segment-bytes": str(128 << 10),
    "snapshot-bytes": str(256 << 10),
    "work-rate-limit": "0",
}
WORKER: Options = {"slots": str(SLOTS), "drain-ms": "10000"}


def options_of(*groups: Options) -> list[str]:
    """Returns the options as command-line arguments."""
    return [part for group in groups for name, value in group.items() for part in (f"--{name}", value)]
