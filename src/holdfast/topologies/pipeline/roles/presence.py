"""Connections that workers keep to their coordinator, and the workers that did not return after theirs dropped.

Invariants:
- Only a worker that kept a connection can be absent: a worker that stands still keeps it, and so does its kernel.
- The grace is counted in looks. A coordinator that stood still itself has looked once meanwhile, and not five times, so
  that a worker which returned in that time is seen before its grace is over.
- The session tells a worker's process from a later one of the same name.
"""

from dataclasses import dataclass
from math import ceil

#: The name of a worker, and its session.
Key = tuple[str, str]

#: How often, in seconds, the coordinator looks for absent workers, and after how many looks the grace is over.
LOOK_S = 0.2
GRACE_LOOKS = 5


@dataclass(slots=True)
class MissingWorker:
    """A worker without a connection: since when nothing was heard of it, its grace, and how often it was looked for."""

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
        """A connection was made: the worker is there."""
        self._connections[key] = self._connections.get(key, 0) + 1
        self._absent.pop(key, None)

    def drop(self, key: Key, now_s: float) -> None:
        """A connection dropped; with the last one the grace begins."""
        left = self._connections.pop(key) - 1
        if left:
            self._connections[key] = left
        else:
            self._absent[key] = MissingWorker(now_s, self._grace_looks)

    def hear(self, key: Key, now_s: float) -> None:
        """The worker was heard of by other means: the grace begins anew."""
        missing = self._absent.get(key)
        if missing is not None:
            self._absent[key] = MissingWorker(now_s, missing.grace_looks)

    def wait_longer(self, key: Key, now_s: float, wait_s: float) -> None:
        """Begin a grace that lasts `wait_s` longer; it stays that long until the worker makes a new connection."""
        if key in self._absent:
            self._absent[key] = MissingWorker(now_s, self._grace_looks + ceil(wait_s / LOOK_S))

    def forget(self, key: Key) -> None:
        """The worker said goodbye, or was taken for lost."""
        self._absent.pop(key, None)

    def look(self) -> list[Key]:
        """Count one look, and return the workers whose grace is over."""
        for missing in self._absent.values():
            missing.looks += 1
        return [key for key, missing in self._absent.items() if missing.looks >= missing.grace_looks]

    def since_s(self, key: Key) -> float | None:
        """Since when nothing was heard of an absent worker; None if it is there."""
        missing = self._absent.get(key)
        return None if missing is None else missing.since_s
