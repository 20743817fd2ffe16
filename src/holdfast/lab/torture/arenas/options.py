"""What the processes of all arenas are told: whoever is gone is missed soon, and nothing is forgotten or limited."""

from collections.abc import Mapping

#: Whoever stands still or dies is missed within two seconds.
LEASE_MS = 2_000
HEARTBEAT_MS = 300
WORKER_TIMEOUT_MS = 1_500
#: Longer than any clock is stepped.
EVER_MS = 3_650 * 86_400_000
SLOTS = 4

Options = Mapping[str, str]

LOGGING: Options = {"log-level": "info", "log-format": "json"}
UNLIMITED: Options = {"rate-limit": "0"}
#: Small files and early snapshots, so that there are many moments at which somebody can be killed between two of them.
LEDGER: Options = {
    "lease-ms": str(LEASE_MS),
    "heartbeat-ms": str(HEARTBEAT_MS),
    "worker-timeout-ms": str(WORKER_TIMEOUT_MS),
    "retain-ms": str(EVER_MS),
    "retain-bytes": str(1 << 40),
    "history-ms": str(EVER_MS),
    "segment-bytes": str(1 << 20),
    "snapshot-bytes": str(2 << 20),
    "work-rate-limit": "0",
}
WORKER: Options = {"slots": str(SLOTS), "drain-ms": "10000"}


def options_of(*groups: Options) -> list[str]:
    """As arguments."""
    return [part for group in groups for name, value in group.items() for part in (f"--{name}", value)]
