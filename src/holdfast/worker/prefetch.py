"""The number of jobs to prefetch beyond the free slots.

Short jobs must stream, or the slots wait for the network. Long jobs must not be hoarded while other workers are idle.
So the backlog holds work for a fixed time, estimated from the recent duration of attempts and from the recent rate of
ends. The duration alone would trust a single job that ended at once, and prefetch hundreds of long ones after it.
"""

import msgspec

from holdfast import limits

#: The backlog lasts about this long: a few round trips.
BACKLOG_S = 0.05
BACKLOG_MAX = 2 * limits.LEASES_PER_GRANT_MAX
#: The share of the average that one report replaces: the maximum, and the share per attempt.
_WEIGHT_MAX = 0.5
_WEIGHT_EACH = 0.05
#: The rate of ends is measured over spans of this length, and at least of the minimum: a shorter span gives no rate.
_SPAN_S = 0.1
_SPAN_S_MIN = 0.02


class AttemptPace(msgspec.Struct):
    """A moving average of the duration of attempts, and the number that end per second; both unknown at first."""

    average_s: float = 0.0
    is_known: bool = False
    _rate: float = 0.0
    _since_s: float = 0.0
    _ends: int = 0

    def learn(self, total_s: float, count: int, now_s: float) -> None:
        """Records `count` attempts that took `total_s` together and have ended by `now_s`."""
        self._count(count, now_s)
        mean_s = total_s / count
        if not self.is_known:
            self.average_s, self.is_known = mean_s, True
            return
        weight = min(_WEIGHT_MAX, _WEIGHT_EACH * count)
        self.average_s += weight * (mean_s - self.average_s)

    def _count(self, count: int, now_s: float) -> None:
        span_s = now_s - self._since_s
        if span_s > _SPAN_S:
            # A longer span was idle for a part of it and gives no rate. The next span begins with this end.
            self._rate = self._ends / span_s if span_s < 2 * _SPAN_S else 0.0
            self._since_s, self._ends, span_s = now_s, 0, 0.0
        self._ends += count
        self._rate = max(self._rate, self._ends / max(span_s, _SPAN_S_MIN))

    def slow_down(self, waited_s: float) -> None:
        """Records that jobs waited this long for a slot, so attempts take longer than estimated."""
        self.average_s, self.is_known, self._rate = max(self.average_s, waited_s), True, 0.0

    def backlog(self, slots: int) -> int:
        """The number of jobs that may wait for a slot."""
        if not self.is_known or self.average_s > BACKLOG_S:
            return 0
        return min(BACKLOG_MAX, int(slots * BACKLOG_S / max(self.average_s, 1e-6)), int(self._rate * BACKLOG_S))
