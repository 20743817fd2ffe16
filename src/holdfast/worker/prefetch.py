"""How many jobs to ask for beyond what the slots can take.

Short jobs must stream, or the slots wait for the network; long ones must not be hoarded while others are free. So the
backlog is worth a fixed time: by what attempts have taken lately, and by how many have ended lately. The first alone
would trust a single job that ended at once, and fetch hundreds of long ones after it.
"""

import msgspec

from holdfast import limits

#: The backlog lasts about this long: a few round trips.
BACKLOG_S = 0.05
BACKLOG_MAX = 2 * limits.LEASES_PER_GRANT_MAX
#: How much of the average the attempts of one report replace, at most and each.
_WEIGHT_MAX = 0.5
_WEIGHT_EACH = 0.05
#: Ends are counted over spans of this length; in a shorter one a few of them say nothing about a rate.
_SPAN_S = 0.1
_SPAN_S_MIN = 0.02


class AttemptPace(msgspec.Struct):
    """A moving average of how long attempts take, and how many end a second; nothing is known at first."""

    average_s: float = 0.0
    is_known: bool = False
    _rate: float = 0.0
    _since_s: float = 0.0
    _ends: int = 0

    def learn(self, total_s: float, count: int, now_s: float) -> None:
        """So many attempts took so long together, and have ended by now."""
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
            # A span of nothing but waiting for work says nothing either: it begins with the first end in it.
            self._rate = self._ends / span_s if span_s < 2 * _SPAN_S else 0.0
            self._since_s, self._ends, span_s = now_s, 0, 0.0
        self._ends += count
        self._rate = max(self._rate, self._ends / max(span_s, _SPAN_S_MIN))

    def slow_down(self, waited_s: float) -> None:
        """Jobs have waited so long for a slot: attempts take longer than was thought."""
        self.average_s, self.is_known, self._rate = max(self.average_s, waited_s), True, 0.0

    def backlog(self, slots: int) -> int:
        """How many jobs may wait for a slot."""
        if not self.is_known or self.average_s > BACKLOG_S:
            return 0
        return min(BACKLOG_MAX, int(slots * BACKLOG_S / max(self.average_s, 1e-6)), int(self._rate * BACKLOG_S))
