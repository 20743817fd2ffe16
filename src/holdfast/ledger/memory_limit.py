"""Refusal of new jobs because of the resident size of the process.

The core refuses submits above `memory_bytes` of held jobs. The resident size is a second limit: it includes memory that
the sum of all jobs does not, such as pending requests and memory that the allocator could not return.
Invariants: only new jobs are refused; nothing is refused while jobs hold less than a quarter of `memory_bytes`, so that
the refusal ends as jobs end and are removed, even if the allocator returns no memory.
"""

from collections.abc import Callable

from holdfast import limits
from holdfast.core.commands import Refusal
from holdfast.core.condition import Condition
from holdfast.core.ledger import Ledger
from holdfast.errors import Code
from holdfast.ledger.ports import Clock

#: The minimum interval between two reads of the resident size.
_LOOK_MS = 200
_BLAMELESS = 4
_WARN_PERCENT = 90


class MemoryWatch:
    """Compares the resident size of the process with its limit."""

    def __init__(self, ledger: Ledger, resident_bytes: Callable[[], int], clock: Clock) -> None:
        self._ledger = ledger
        self._resident_bytes = resident_bytes
        self._clock = clock
        self._looked_ms: int | None = None
        self._seen = 0
        limit = ledger.config.memory_bytes
        #: The resident size above which new jobs are refused; 0 means no limit.
        self.resident_max = limit + max(limit // 2, limits.RESIDENT_SLACK_BYTES) if limit else 0

    def refusal(self) -> Refusal | None:
        """Returns the refusal of new jobs, if the process is too large."""
        if not self.resident_max or _BLAMELESS * self._ledger.state.bytes_held < self._ledger.config.memory_bytes:
            return None
        resident = self._resident()
        if resident <= self.resident_max:
            return None
        message = (
            f"the server process uses {resident:,} bytes of memory, its limit is {self.resident_max:,} (memory_bytes is"
            f" {self._ledger.config.memory_bytes:,}); try again when jobs have ended and were removed"
        )
        return Refusal(Code.RESOURCE_EXHAUSTED, "PROCESS_TOO_LARGE", message)

    def _resident(self) -> int:
        now_ms = self._clock.steady_ms()
        if self._looked_ms is None or now_ms - self._looked_ms >= _LOOK_MS:
            self._looked_ms, self._seen = now_ms, self._resident_bytes()
        return self._seen

    def conditions(self) -> list[Condition]:
        """Returns the conditions for the operator: that new jobs are refused, or soon will be."""
        held, limit = self._ledger.state.bytes_held, self._ledger.config.memory_bytes
        refusal = self._ledger.tasks.no_room(0, 0) or self.refusal()
        if refusal is not None:
            return [Condition("new jobs are refused", refusal.message)]
        if limit and 100 * held >= _WARN_PERCENT * limit:
            percent = 100 * held // limit
            return [Condition(f"held jobs take {percent} % of memory_bytes", f"memory_bytes is {limit:,}")]
        return []
