"""Ends the leases of a worker: writes the outcome of a job, or returns it to its lane.

Invariants: every write is one transaction that checks the lease, so an outcome under a lost bid is refused; a write is
repeated until the ensemble replies.
"""

from holdfast.core.commands import ReportRow
from holdfast.core.failure import last_part, traceback_of
from holdfast.core.lifecycle import DONE, RUNNING
from holdfast.core.outcomes import failure_text, result_of
from holdfast.errors import UnavailableError
from holdfast.topologies.zookeeper.backend.node_changes import Decide, Decided, NodeChanges
from holdfast.topologies.zookeeper.backend.records import VersionedRecord

#: Size limit of a retried attempt's stored traceback; ZooKeeper servers keep all data in memory.
_DETAIL_CHARS_MAX = 8 * 1_024


class LeaseOutcomes:
    """Ends leases of one worker."""

    def __init__(self, node_changes: NodeChanges, worker: str) -> None:
        self._node_changes = node_changes
        self._connection = node_changes.connection
        self._worker = worker

    async def report(self, stored: VersionedRecord, row: ReportRow) -> bool:
        """Writes an outcome and returns whether it counts; it does not if the worker has lost the lease."""
        token = stored.record.token

        async def decide(stored: VersionedRecord) -> Decided:
            if not self._is_ours(stored, token):
                return None
            now_ms = self._connection.now_ms()
            return self._node_changes.transactions.report(stored, result_of(stored.record, token, row, now_ms), now_ms)

        if row.state == DONE:
            return await self._write(stored, decide)
        detail = last_part(traceback_of(row.output), _DETAIL_CHARS_MAX)
        return await self._write(stored, decide, failure_text(row.failure_reason, row.summary), detail)

    async def give_back(self, stored: VersionedRecord, why: str, *, is_spent: bool) -> None:
        """Returns the job to its lane, unless the worker has lost the lease."""
        token = stored.record.token

        async def decide(stored: VersionedRecord) -> Decided:
            if not self._is_ours(stored, token):
                return None
            return self._node_changes.transactions.give_back(
                stored, why, self._connection.now_ms(), is_spent=is_spent, has_bid=True
            )

        await self._write(stored, decide, why)

    async def _write(self, stored: VersionedRecord, decide: Decide, reason: str = "", detail: str = "") -> bool:
        while True:
            try:
                return await self._node_changes.change(stored, decide, reason, detail) is not None
            except UnavailableError:
                await self._connection.back()

    def _is_ours(self, stored: VersionedRecord, token: int) -> bool:
        record = stored.record
        return record.state == RUNNING and record.worker == self._worker and record.token == token
