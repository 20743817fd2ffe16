"""Lanes that are full in the queue processes: their rows stay in the database until there is room again.

Invariants: a lane is left alone until an exchange says that it has room, and is asked for ever more seldom while it has
none. What is urgent has lanes of its own: full ones keep nothing else in the database. Where nobody can say, it is
tried again after a moment: rows that are refused are only put back.
"""

import time
from collections.abc import Sequence

from holdfast.topologies.pipeline.backend.store import FullLane

_FIRST_S = 0.05
_DELAY_S_MAX = 1.0


class FullLanes:
    """Which lanes are full, and when to ask again. Times are those of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        #: For each the next look, and the time between looks.
        self._looks: dict[FullLane, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._looks)

    def all(self) -> list[FullLane]:
        """What is not worth claiming."""
        return sorted(self._looks)

    def add(self, lanes: Sequence[FullLane]) -> None:
        """They were full just now."""
        now = time.monotonic()
        for lane in lanes:
            self._looks[lane] = (now + _FIRST_S, _FIRST_S)

    def to_look_at(self) -> list[FullLane]:
        """Those whose time has come."""
        now = time.monotonic()
        return sorted(lane for lane, (at_s, _) in self._looks.items() if at_s <= now)

    def seen(self, lanes: Sequence[FullLane], rooms: Sequence[int]) -> None:
        """What room each has: one that has some is worth claiming again."""
        now = time.monotonic()
        for lane, room in zip(lanes, rooms, strict=True):
            if room > 0:
                self._looks.pop(lane, None)
            else:
                delay_s = min(2 * self._looks[lane][1], _DELAY_S_MAX)
                self._looks[lane] = (now + delay_s, delay_s)

    def forget(self, lanes: Sequence[FullLane]) -> None:
        """Nobody can say: they are tried."""
        for lane in lanes:
            self._looks.pop(lane, None)

    def next_s(self) -> float | None:
        """How long until the next look."""
        if not self._looks:
            return None
        return max(0.0, min(at_s for at_s, _ in self._looks.values()) - time.monotonic())
