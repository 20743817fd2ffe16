"""How many jobs to ask for beyond what the slots can take.

Short jobs must stream, or the slots wait for the network; long ones must not be hoarded while others are free. So the
backlog is worth a fixed time by what attempts have taken lately, and an attempt that takes longer than that has none.
"""

import msgspec

from holdfast import limits

#: The backlog lasts about this long: a few round trips.
BACKLOG_S = 0.05
BACKLOG_MAX = limits.LEASES_PER_GRANT_MAX
#: How much of the average the attempts of one report replace, at most and each.
_WEIGHT_MAX = 0.5
_WEIGHT_EACH = 0.05


class Pace(msgspec.Struct):
    """A moving average of how long attempts take; nothing is known at first."""

    average_s: float = 0.0
    is_known: bool = False

    def learn(self, total_s: float, count: int) -> None:
        """So many attempts took so long together."""
        mean_s = total_s / count
        if not self.is_known:
            self.average_s, self.is_known = mean_s, True
            return
        weight = min(_WEIGHT_MAX, _WEIGHT_EACH * count)
        self.average_s += weight * (mean_s - self.average_s)

    def slow_down(self, waited_s: float) -> None:
        """Jobs have waited so long for a slot: attempts take longer than was thought."""
        self.average_s, self.is_known = max(self.average_s, waited_s), True

    def backlog(self, slots: int) -> int:
        """How many jobs may wait for a slot."""
        if not self.is_known or self.average_s > BACKLOG_S:
            return 0
        return min(BACKLOG_MAX, int(slots * BACKLOG_S / max(self.average_s, 1e-6)))
