"""How many requests a second each caller may make: a bucket for each, that fills at the rate and holds a burst.

What keeps leases alive has buckets of its own, so that whoever floods with submits uses up nothing of it.
"""

import time
from collections.abc import Callable
from math import ceil

from holdfast.errors import ResourceExhaustedError
from holdfast.server.auth.permissions import Scope

#: What a bucket holds, in seconds of its rate: a burst after a pause is no flood.
_BURST_S = 2.0


class Budgets:
    """The buckets of all callers; a rate of 0 sets no limit."""

    def __init__(
        self, requests_per_s: int = 0, work_per_s: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._requests = _Buckets(requests_per_s, "requests", clock)
        self._work = _Buckets(work_per_s, "calls of workers", clock)

    def spend(self, name: str, scope: Scope | None) -> None:
        """Counts one request of this caller; `ResourceExhaustedError` says when to come back."""
        (self._work if scope is Scope.WORK else self._requests).spend(name)

    def sweep(self) -> None:
        """Forgets everybody whose bucket is full again: there are as many as there were lately."""
        self._requests.sweep()
        self._work.sweep()


class _Buckets:
    """Those of one kind of request: how much each holds, and when that was so."""

    def __init__(self, per_s: int, what: str, clock: Callable[[], float]) -> None:
        self._per_s = per_s
        self._most = max(1.0, per_s * _BURST_S)
        self._what = what
        self._clock = clock
        self._levels: dict[str, tuple[float, float]] = {}

    def spend(self, name: str) -> None:
        if not self._per_s:
            return
        now = self._clock()
        level, at = self._levels.get(name, (self._most, now))
        level = min(self._most, level + (now - at) * self._per_s)
        if level < 1.0:
            self._levels[name] = level, now
            raise self._over(1.0 - level)
        self._levels[name] = level - 1.0, now

    def sweep(self) -> None:
        now = self._clock()
        full = [name for name, (level, at) in self._levels.items() if level + (now - at) * self._per_s >= self._most]
        for name in full:
            del self._levels[name]

    def _over(self, missing: float) -> ResourceExhaustedError:
        return ResourceExhaustedError(
            f"more than {self._per_s} {self._what} a second came from this caller; try again in a moment",
            reason="OVER_BUDGET",
            details={"retry_after_s": str(ceil(missing / self._per_s))},
        )
