"""What becomes of a job that a worker holds: an outcome, or another worker.

Invariants: whatever is written is written by one transaction that checks whose job it is, so a lost bid's outcome is
refused; what could not be written because nobody answered is tried again until somebody does.
"""

from holdfast.core.commands import ReportRow
from holdfast.core.failure import last_part, traceback_of
from holdfast.core.lifecycle import DONE, RUNNING
from holdfast.core.outcomes import failure_text, result_of
from holdfast.errors import UnavailableError
from holdfast.topologies.zookeeper.backend.node_changes import Changing, Decide, Decided
from holdfast.topologies.zookeeper.backend.records import Kept

#: What is kept of the traceback of an attempt that is retried: servers have all of it in memory.
_DETAIL_CHARS_MAX = 8 * 1_024


class Settling:
    """Changes of the jobs of one worker."""

    def __init__(self, changing: Changing, worker: str) -> None:
        self._changing = changing
        self._connection = changing.connection
        self._worker = worker

    async def report(self, kept: Kept, row: ReportRow) -> bool:
        """Whether it counts; it does not if the job was given to somebody else meanwhile."""
        token = kept.record.token

        async def decide(kept: Kept) -> Decided:
            if not self._is_ours(kept, token):
                return None
            now_ms = self._connection.now_ms()
            return self._changing.moves.report(kept, result_of(kept.record, token, row, now_ms), now_ms)

        if row.state == DONE:
            return await self._write(kept, decide)
        detail = last_part(traceback_of(row.output), _DETAIL_CHARS_MAX)
        return await self._write(kept, decide, failure_text(row.failure_reason, row.summary), detail)

    async def give_back(self, kept: Kept, why: str, *, is_spent: bool) -> None:
        """To whoever takes it next, unless it is somebody else's already."""
        token = kept.record.token

        async def decide(kept: Kept) -> Decided:
            if not self._is_ours(kept, token):
                return None
            return self._changing.moves.give_back(kept, why, self._connection.now_ms(), is_spent=is_spent, has_bid=True)

        await self._write(kept, decide, why)

    async def _write(self, kept: Kept, decide: Decide, reason: str = "", detail: str = "") -> bool:
        while True:
            try:
                return await self._changing.change(kept, decide, reason, detail) is not None
            except UnavailableError:
                await self._connection.back()

    def _is_ours(self, kept: Kept, token: int) -> bool:
        record = kept.record
        return record.state == RUNNING and record.worker == self._worker and record.token == token
