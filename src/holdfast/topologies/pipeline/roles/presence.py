"""Persistent connections of workers to their coordinator, and the workers that did not reconnect after a drop.

Invariants:
- Only a worker that had a connection can be absent. A stalled worker is not absent: its kernel keeps the connection.
- The grace period is counted in checks. A coordinator that was stalled itself has made one check meanwhile, not five,
  so it sees a worker that reconnected in that time before the grace period is over.
- The session distinguishes a worker's process from a later one of the same name.
"""

from dataclasses import dataclass
from math import ceil

#: The name of a worker, and its session.
Key = tuple[str, str]

#: The interval of the checks for absent workers, in seconds, and the number of checks of a grace period.
LOOK_S = 0.2
GRACE_LOOKS = 5


@dataclass(slots=True)
class MissingWorker:
    """A worker without a connection: the time of its last message, its grace period, and the checks made so far."""

    since_s: float
    grace_looks: int
    looks: int = 0


class Presence:
    """All connections by worker and session. Times are those of a monotonic clock, in seconds."""

    def __init__(self, grace_looks: int = GRACE_LOOKS) -> None:
        self._grace_looks = grace_looks
        self._connections: dict[Key, int] = {}
        self._absent: dict[Key, MissingWorker] = {}

    def __len__(self) -> int:
        return len(self._connections)

    def open(self, key: Key) -> None:
        """Records a new connection; the worker is present."""
        self._connections[key] = self._connections.get(key, 0) + 1
        self._absent.pop(key, None)

    def drop(self, key: Key, now_s: float) -> None:
        """Records a dropped connection; with the last one the grace period begins."""
        left = self._connections.pop(key) - 1
        if left:
            self._connections[key] = left
        else:
            self._absent[key] = MissingWorker(now_s, self._grace_looks)

    def hear(self, key: Key, now_s: float) -> None:
        """Records another message of the worker: its grace period begins again."""
        missing = self._absent.get(key)
        if missing is not None:
            self._absent[key] = MissingWorker(now_s, missing.grace_looks)

    def wait_longer(self, key: Key, now_s: float, wait_s: float) -> None:
        """Begins a grace period that lasts `wait_s` longer; it stays that long until the worker reconnects."""
        if key in self._absent:
            self._absent[key] = MissingWorker(now_s, self._grace_looks + ceil(wait_s / LOOK_S))

    def forget(self, key: Key) -> None:
        """Removes a worker that said goodbye, or is lost."""
        self._absent.pop(key, None)

    def look(self) -> list[Key]:
        """Counts one check, and returns the workers whose grace period is over."""
        for missing in self._absent.values():
            missing.looks += 1
        return [key for key, missing in self._absent.items() if missing.looks >= missing.grace_looks]

    def since_s(self, key: Key) -> float | None:
        """Returns the time of the last message of an absent worker; None if it is present."""
        missing = self._absent.get(key)
        return None if missing is None else missing.since_s
