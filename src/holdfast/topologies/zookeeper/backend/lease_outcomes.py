"""Ends the leases of a worker: writes the outcome of a job, or returns it to its lane.

Invariants: every write is one transaction that checks the lease, so an outcome under a lost bid is refused; a write is
repeated until the ensemble replies.
"""

from holdfast.core.commands import ReportRow
from holdfast.core.failure import last_part, traceback_of
from holdfast.core.lifecycle import DONE, RUNNING
from holdfast.core.outcomes import failure_text, result_of
from holdfast.errors import UnavailableError
from holdfast.topologies.zookeeper.backend.node_changes import Changing, Decide, Decided
from holdfast.topologies.zookeeper.backend.records import Kept

#: Size limit of a retried attempt's stored traceback; ZooKeeper servers keep all data in memory.
_DETAIL_CHARS_MAX = 8 * 1_024


class Settling:
    """Ends leases of one worker."""

    def __init__(self, changing: Changing, worker: str) -> None:
        self._changing = changing
        self._connection = changing.connection
        self._worker = worker

    async def report(self, kept: Kept, row: ReportRow) -> bool:
        """Writes an outcome and returns whether it counts; it does not if the worker has lost the lease."""
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
        """Returns the job to its lane, unless the worker has lost the lease."""
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
