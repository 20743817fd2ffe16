"""Simulated time: one heap of calls, two clocks, and a digest of every step.

Invariants: calls run in order of time, then phase, then the order in which they were planned; the monotonic clock only
goes forward, and the wall clock is the monotonic one plus an offset that faults change.
"""

import hashlib
import heapq
from collections import deque
from collections.abc import Callable

from holdfast.clock import Uptime

Call = Callable[[], None]

#: Order of calls at one instant: pending turns, then arrived messages, then timers.
RUNNING, ARRIVED, DUE = range(3)

#: 2026-01-01T00:00:00Z
_WALL_START_MS = 1_767_225_600_000
_TAIL_STEPS = 40
_PHASE_BITS = 48


class ScheduledCall:
    """A call that is due later; also the coordinator's `Timer`."""

    __slots__ = ("call", "kind")

    def __init__(self, kind: str, call: Call) -> None:
        self.kind = kind
        self.call: Call | None = call

    def cancel(self) -> None:
        """Cancels the call, unless it was already made."""
        self.call = None


class SimulatedScheduler:
    """The scheduler of the simulation, and its `Clock`."""

    __slots__ = ("_hash", "_heap", "_number", "boots", "mark", "now_us", "steps", "tail", "wall_offset_ms")

    def __init__(self) -> None:
        self.now_us = 0
        self.steps = 0
        self.wall_offset_ms = 0
        #: How often the machine has booted; its uptime counts from the start of the run.
        self.boots = 1
        #: A value that distinguishes two runs at this instant; set by the world, hashed with every step.
        self.mark = 0
        self.tail: deque[tuple[int, str]] = deque(maxlen=_TAIL_STEPS)
        self._heap: list[tuple[int, int, ScheduledCall]] = []
        self._number = 0
        self._hash = hashlib.sha256()

    def steady_ms(self) -> int:
        """Milliseconds since the start of the run."""
        return self.now_us // 1_000

    def wall_ms(self) -> int:
        """The wall clock."""
        return _WALL_START_MS + self.wall_offset_ms + self.now_us // 1_000

    def uptime(self) -> Uptime | None:
        """The machine's uptime, with the id of its boot."""
        return Uptime(f"boot-{self.boots}", self.steady_ms())

    def set_wall(self, wall_ms: int) -> None:
        """Sets the wall clock, not before 1970."""
        self.wall_offset_ms = max(0, wall_ms) - _WALL_START_MS - self.now_us // 1_000

    def after(self, delay_us: int, kind: str, call: Call, phase: int = ARRIVED) -> ScheduledCall:
        """Plans a call; `kind` is its name in the trace."""
        planned = ScheduledCall(kind, call)
        self._number += 1
        heapq.heappush(self._heap, (self.now_us + delay_us, phase << _PHASE_BITS | self._number, planned))
        return planned

    def step(self) -> bool:
        """Makes the next call; returns whether there was one."""
        heap = self._heap
        while heap:
            at_us, _, planned = heapq.heappop(heap)
            call = planned.call
            if call is None:
                continue
            self.now_us = max(self.now_us, at_us)  # a process that was stopped is late for its plans
            self.steps += 1
            self._hash.update(b"%d %d %s\n" % (at_us, self.mark, planned.kind.encode()))
            self.tail.append((at_us, planned.kind))
            call()
            return True
        return False

    def note(self, text: str) -> None:
        """Adds an event within a step to the trace."""
        self._hash.update(text.encode())
        self.tail.append((self.now_us, text))

    def digest(self) -> str:
        """Returns a hash of every step so far."""
        return self._hash.hexdigest()
