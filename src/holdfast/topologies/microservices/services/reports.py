"""Decides whether a report counts, and applies it.

A report counts under the current lease of its worker. That is checked before anything is stored, because an envelope
cannot be removed; the token in the move is the final check. A report that repeats the end of its job is accepted again,
so that a worker may repeat a report whose reply was lost.
"""

from collections.abc import Callable

from holdfast import limits
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import DONE, FAILED, QUEUED, RUNNING, TERMINAL
from holdfast.core.model import Now, Result
from holdfast.core.outcomes import LOSSES_SPENT, OUTPUT_TOO_LARGE, result_of
from holdfast.errors import InvalidArgumentError, NotFoundError
from holdfast.observe.logs import get_logger
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.topologies.microservices.services.lease_table import EXPIRED, HeldJob, LeaseTable
from holdfast.topologies.microservices.services.outcomes import OutcomeWriter, TriedRecord


class OutcomeReports:
    """Applies the outcomes of attempts. A job whose output is larger than `output_bytes_max` fails."""

    def __init__(
        self, table: LeaseTable, outcome_writer: OutcomeWriter, now: Callable[[], Now], output_bytes_max: int
    ) -> None:
        self._table = table
        self._outcome_writer = outcome_writer
        self._now = now
        self._output_bytes_max = min(output_bytes_max, limits.OUTPUT_BYTES_MAX)

    async def report(self, worker: str, row: ReportRow) -> str:
        """Applies a report; returns an empty string if it counts, or the reason why it does not."""
        refused = await self._report(worker, row)
        if refused:
            get_logger().warning(
                "report_refused",
                method="ReportWorkOutcome",
                job_id=row.job_id[: limits.JOB_ID_CHARS_MAX],
                worker_id=worker,
                token=row.token,
                reason=refused,
                message="a late, stale or foreign report was ignored",
            )
        return refused

    async def _report(self, worker: str, row: ReportRow) -> str:
        lease = self._table.get(row.job_id)
        record: pb.GetJobRecordResponse | None = None
        if lease is None or row.token > lease.token:
            record = await self._outcome_writer.record(row.job_id)
            refused, lease = self._adopted(record, row)
            if lease is None:
                return refused
        async with lease.lock:
            refused = self._refused(lease, worker, row)
            if refused == "GONE":  # the lease ended while this report waited for the lock
                record = await self._outcome_writer.record(row.job_id)
                return self._adopted(record, row)[0] or "STALE_TOKEN"
            if refused:
                return refused
            # A success needs no record, and is by far the most common outcome.
            if record is None and row.state != DONE:
                record = await self._outcome_writer.record(row.job_id)
            return await self._settle(lease, row, record or pb.GetJobRecordResponse())

    def _adopted(self, record: pb.GetJobRecordResponse | None, row: ReportRow) -> tuple[str, HeldJob | None]:
        """Returns the lease of the record, or the reason why there is none."""
        if record is None:
            return "UNKNOWN_JOB", None
        status = int(record.summary.status)
        if status in TERMINAL:
            is_repeat = 0 != row.token == record.token and status == row.state
            is_own = is_repeat and record.failure_reason != LOSSES_SPENT
            return "" if is_own else "ALREADY_FINISHED", None
        if status != RUNNING or row.token not in {0, record.token}:
            return "STALE_TOKEN", None
        return "", self._table.adopt(record, self._now())

    def _refused(self, lease: HeldJob, worker: str, row: ReportRow) -> str:
        if lease not in self._table:
            return "GONE"
        if row.token not in {0, lease.token}:
            return "STALE_TOKEN"
        if lease.worker != worker:
            return "NOT_THE_HOLDER"
        if lease.verdict is not None:
            return "LEASE_EXPIRED" if lease.verdict is EXPIRED else "STALE_TOKEN"
        return ""

    async def _settle(self, lease: HeldJob, row: ReportRow, record: pb.GetJobRecordResponse) -> str:
        result = result_of(
            TriedRecord(record), lease.token, row, record.now_ms, output_bytes_max=self._output_bytes_max
        )
        try:
            if result.state == QUEUED:
                return await self._outcome_writer.try_again(lease, result)
            return await self._outcome_writer.end(lease, result)
        except NotFoundError:
            self._table.drop(lease)
            return "UNKNOWN_JOB"
        except InvalidArgumentError as error:
            if error.reason != OUTPUT_TOO_LARGE:
                raise
            # The result service has a lower limit than this service.
            summary = f"{OUTPUT_TOO_LARGE}: {error.message}"
            return await self._outcome_writer.end(
                lease, Result(lease.token, FAILED, b"", summary, OUTPUT_TOO_LARGE, result.runtime_ms)
            )
