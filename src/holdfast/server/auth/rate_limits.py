"""Rate limits: a bucket for each caller, which fills at the rate and holds a burst.

Calls of workers, which keep leases alive, have separate buckets, so that a flood of submits cannot exhaust them.
"""

import time
from collections.abc import Callable
from math import ceil

from holdfast.errors import ResourceExhaustedError
from holdfast.server.auth.permissions import Scope

#: Capacity of a bucket, in seconds of its rate: a burst after a pause is allowed.
_BURST_S = 2.0


class Budgets:
    """The buckets of all callers; a rate of 0 sets no limit."""

    def __init__(
        self, requests_per_s: int = 0, work_per_s: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._requests = _Buckets(requests_per_s, "requests", clock)
        self._work = _Buckets(work_per_s, "worker calls", clock)

    def spend(self, name: str, scope: Scope | None) -> None:
        """Counts one request of this caller; `ResourceExhaustedError` with `retry_after_s` if its bucket is empty."""
        (self._work if scope is Scope.WORK else self._requests).spend(name)

    def sweep(self) -> None:
        """Removes full buckets, so that only recent callers take memory."""
        self._requests.sweep()
        self._work.sweep()


class _Buckets:
    """The buckets for one kind of request: the level of each caller, and the time of that level."""

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
            f"this caller exceeded the limit of {self._per_s} {self._what} per second; try again in a moment",
            reason="OVER_BUDGET",
            details={"retry_after_s": str(ceil(missing / self._per_s))},
        )
