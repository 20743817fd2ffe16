"""When new jobs are refused because of memory, as far as the pure core cannot know it.

The core refuses submits above `memory_bytes` of held jobs. The resident size of the process is the second line: it
counts what the sum of all jobs does not, such as requests under way and memory that the allocator could not give back.
Invariants: nothing but new jobs is refused; jobs that hold less than a quarter of `memory_bytes` are never to blame, so
that the refusal ends as jobs end and are removed, even where the allocator gives nothing back.
"""

from collections.abc import Callable

from holdfast import limits
from holdfast.core.commands import Refusal
from holdfast.core.condition import Condition
from holdfast.core.ledger import Ledger
from holdfast.errors import Code
from holdfast.ledger.ports import Clock

#: The system is asked no more often than this.
_LOOK_MS = 200
_BLAMELESS = 4
_WARN_PERCENT = 90


class MemoryWatch:
    """Compares the resident size of the process with what it may be."""

    def __init__(self, ledger: Ledger, resident_bytes: Callable[[], int], clock: Clock) -> None:
        self._ledger = ledger
        self._resident_bytes = resident_bytes
        self._clock = clock
        self._looked_ms: int | None = None
        self._seen = 0
        limit = ledger.config.memory_bytes
        #: The resident size above which new jobs are refused; 0: never.
        self.resident_max = limit + max(limit // 2, limits.RESIDENT_SLACK_BYTES) if limit else 0

    def refusal(self) -> Refusal | None:
        """Why no new job can be taken now."""
        if not self.resident_max or _BLAMELESS * self._ledger.book.bytes_held < self._ledger.config.memory_bytes:
            return None
        resident = self._resident()
        if resident <= self.resident_max:
            return None
        message = (
            f"the server's process takes {resident:,} bytes of memory, and may take {self.resident_max:,} with its"
            f" memory_bytes of {self._ledger.config.memory_bytes:,}; try again when jobs have ended and were removed"
        )
        return Refusal(Code.RESOURCE_EXHAUSTED, "PROCESS_TOO_LARGE", message)

    def _resident(self) -> int:
        now_ms = self._clock.steady_ms()
        if self._looked_ms is None or now_ms - self._looked_ms >= _LOOK_MS:
            self._looked_ms, self._seen = now_ms, self._resident_bytes()
        return self._seen

    def conditions(self) -> list[Condition]:
        """What an operator should know; nothing while there is room."""
        held, limit = self._ledger.book.bytes_held, self._ledger.config.memory_bytes
        refusal = self._ledger.tasks.no_room(0, 0) or self.refusal()
        if refusal is not None:
            return [Condition("new jobs are refused", refusal.message)]
        if limit and 100 * held >= _WARN_PERCENT * limit:
            percent = 100 * held // limit
            return [Condition(f"held jobs take {percent} % of the memory for them", f"memory_bytes is {limit:,}")]
        return []
