"""Lanes that are full in the queue processes: their rows stay in the database until there is free capacity again.

Invariants: a full lane is not claimed until an exchange reports free capacity; the checks become less frequent while
it has none. High priorities have lanes of their own, which do not block normal ones when they are full. If no exchange
responds, the lane is claimed again: rows that are refused are only put back.
"""

import time
from collections.abc import Sequence

from holdfast.topologies.pipeline.backend.store import FullLane

_FIRST_S = 0.05
_DELAY_S_MAX = 1.0


class FullLanes:
    """The full lanes, and when to check them again. Times are those of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        #: For each lane the time of the next check, and the delay between checks.
        self._looks: dict[FullLane, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._looks)

    def all(self) -> list[FullLane]:
        """Returns the lanes that should not be claimed."""
        return sorted(self._looks)

    def add(self, lanes: Sequence[FullLane]) -> None:
        """Adds lanes that have just been full."""
        now = time.monotonic()
        for lane in lanes:
            self._looks[lane] = (now + _FIRST_S, _FIRST_S)

    def to_look_at(self) -> list[FullLane]:
        """Returns the lanes whose check is due."""
        now = time.monotonic()
        return sorted(lane for lane, (at_s, _) in self._looks.items() if at_s <= now)

    def seen(self, lanes: Sequence[FullLane], rooms: Sequence[int]) -> None:
        """Records the free capacity of each lane; a lane with free capacity may be claimed again."""
        now = time.monotonic()
        for lane, room in zip(lanes, rooms, strict=True):
            if room > 0:
                self._looks.pop(lane, None)
            else:
                delay_s = min(2 * self._looks[lane][1], _DELAY_S_MAX)
                self._looks[lane] = (now + delay_s, delay_s)

    def forget(self, lanes: Sequence[FullLane]) -> None:
        """Allows claims of lanes whose capacity could not be checked."""
        for lane in lanes:
            self._looks.pop(lane, None)

    def next_s(self) -> float | None:
        """Returns the time until the next check; None if no lane is full."""
        if not self._looks:
            return None
        return max(0.0, min(at_s for at_s, _ in self._looks.values()) - time.monotonic())
