"""What the processes of all arenas are told: whoever is gone is missed soon, and no call is limited.

How long ended jobs are kept and how often a job may lose its worker is not told: the product's defaults count. So a run
of hours forgets nothing, unless the product believes a clock that is wrong by days.
"""

from collections.abc import Mapping

#: Whoever stands still or dies is missed within two seconds.
LEASE_MS = 2_000
HEARTBEAT_MS = 300
WORKER_TIMEOUT_MS = 1_500
SLOTS = 4

Options = Mapping[str, str]

LOGGING: Options = {"log-level": "info", "log-format": "json"}
UNLIMITED: Options = {"rate-limit": "0"}
#: Small files, early snapshots and a short history, so that there are many moments at which somebody can be killed
#: between two of them, and that much of the journal is removed during the run.
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
    """As arguments."""
    return [part for group in groups for name, value in group.items() for part in (f"--{name}", value)]
