"""Every change of a job, as the steps of one transaction.

Invariants:
- Each change writes the record under the version that was read, so one of two concurrent changes is refused as a whole.
- A job waits in exactly one place or runs under exactly one bid, and an ended job has exactly one result.
- `core/outcomes.py` decides the outcome of an attempt; this module only writes it.
"""

from msgspec.structs import replace

from holdfast.core import lifecycle
from holdfast.core.lifecycle import CANCELED, FAILED, QUEUED, RUNNING, TERMINAL
from holdfast.core.model import Result
from holdfast.core.outcomes import LOSSES_SPENT, revocation_of
from holdfast.topologies.zookeeper.backend.lanes import NodeLanes
from holdfast.topologies.zookeeper.backend.paths import Paths, Posting, bucket_number
from holdfast.topologies.zookeeper.backend.records import DELAYED, Record, VersionedRecord, encode
from holdfast.topologies.zookeeper.backend.transactions import Check, Create, Delete, Put, Step


class JobTransactions:
    """Builds the steps of changes, for one root."""

    def __init__(self, paths: Paths, lanes: NodeLanes) -> None:
        self._paths = paths
        self._lanes = lanes

    def submit(self, record: Record, payload: bytes) -> list[Step]:
        """Creates all nodes of a new job.

        Nodes that may exist already come first, in order of precedence: request id, job id, unique key.
        """
        paths, extra = self._paths, record.extra
        steps: list[Step] = []
        if extra is not None and extra.request_id:
            steps.append(Create(paths.key(extra.request_id), record.id.encode()))
        steps.append(Create(paths.record(record.id), encode(record)))
        if extra is not None and extra.unique_key:
            steps.append(Create(paths.unique(record.template.type, extra.unique_key), record.id.encode()))
        if payload:
            steps.append(Create(paths.payload(record.id), payload))
        steps.append(Create(paths.indexed(record.created_ms, record.id)))
        return [*steps, *self._wait(record)]

    def take(self, stored: VersionedRecord, posting: Posting, worker: str, now_ms: int) -> tuple[Record, list[Step]]:
        """Bids for a job; refused if it was deleted, canceled or taken."""
        paths, record = self._paths, stored.record
        lifecycle.check(record.state, RUNNING)
        taken = replace(
            record,
            state=RUNNING,
            place=posting.place,
            token=0,
            grants=record.grants + 1,
            # Clocks differ by milliseconds; times in the history must not go back.
            started_ms=max(now_ms, record.created_ms, record.not_before_ms),
            worker=worker,
        )
        return taken, [
            Delete(paths.posting(record.lane, posting)),
            Put(paths.record(record.id), encode(taken), stored.version),
            Create(paths.bid(record.id), worker.encode(), ephemeral=True),
            Create(f"{paths.held_by(worker)}/{record.id}"),
        ]

    def adopt(self, stored: VersionedRecord, *, is_bid_there: bool) -> list[Step]:
        """Moves a lease to another session of its worker."""
        paths, record = self._paths, stored.record
        bid = paths.bid(record.id)
        old: list[Step] = [Delete(bid)] if is_bid_there else []
        put = Put(paths.record(record.id), encode(record), stored.version)
        return [put, *old, Create(bid, record.worker.encode(), ephemeral=True)]

    def report(
        self, stored: VersionedRecord, result: Result, now_ms: int, *, has_bid: bool = True
    ) -> tuple[Record, list[Step]]:
        """Applies a report: the job ends or is retried."""
        record = stored.record
        if result.state in TERMINAL:
            return self._end(stored, result, now_ms, self._let_go(record, has_bid=has_bid), record.worker)
        lifecycle.check(record.state, QUEUED)
        again = replace(
            record, state=QUEUED, failures=record.failures + 1, not_before_ms=result.not_before_ms, worker=""
        )
        return self._wait_again(stored, again, has_bid=has_bid)

    def give_back(
        self, stored: VersionedRecord, why: str, now_ms: int, *, is_spent: bool, has_bid: bool
    ) -> tuple[Record, list[Step]]:
        """Applies the loss of a bid: the job returns to its lane or ends."""
        record = stored.record
        revocation = revocation_of(record, is_spent=is_spent)
        lost = replace(record, losses=record.losses + revocation.is_spent, worker="")
        if revocation.state == QUEUED:
            lifecycle.check(record.state, QUEUED)
            back = replace(lost, state=QUEUED, bucket=-1)
            put = Put(self._paths.record(record.id), encode(back), stored.version)
            return back, [put, *self._let_go(record, has_bid=has_bid), *self._lanes.steps_back(back)]
        tries = lost.failures + lost.losses
        summary = record.cancel_reason or f"its lease ended ({why}) after {tries} attempts"
        reason = LOSSES_SPENT if revocation.state == FAILED else ""
        result = Result(0, revocation.state, summary=summary, failure_reason=reason)
        before = self._let_go(record, has_bid=has_bid)
        return self._end(VersionedRecord(lost, stored.version), result, now_ms, before, record.worker)

    def cancel_queued(
        self, stored: VersionedRecord, waits_at: str, reason: str, now_ms: int
    ) -> tuple[Record, list[Step]]:
        """Ends a waiting job at once."""
        canceled = replace(stored.record, cancel_requested=True, cancel_reason=reason)
        result = Result(0, CANCELED, summary=reason)
        return self._end(VersionedRecord(canceled, stored.version), result, now_ms, [Delete(waits_at)])

    def ask_to_stop(
        self, stored: VersionedRecord, reason: str, now_ms: int, *, is_heard: bool
    ) -> tuple[Record, list[Step]]:
        """Sets the cancel flag, and adds a notice for the worker if it is connected."""
        record = stored.record
        asked = replace(record, cancel_requested=True, cancel_reason=reason, cancel_ms=now_ms)
        put = Put(self._paths.record(record.id), encode(asked), stored.version)
        word = [Create(f"{self._paths.asked_of(record.worker)}/{record.id}")] if is_heard else []
        return asked, [put, *word]

    def due(self, stored: VersionedRecord, bucket: int) -> tuple[Record, list[Step]]:
        """Moves a delayed job to its lane."""
        record = stored.record
        waiting = replace(record, bucket=bucket)
        return waiting, [
            Delete(self._paths.delayed_job(record.not_before_ms, record.id)),
            Put(self._paths.record(record.id), encode(waiting), stored.version),
            *self._wait(waiting),
        ]

    def strike_out(self, stored: VersionedRecord | None, *, job_id: str, worker: str) -> list[Step]:
        """Deletes the node under `held` of a job that the worker did not hold when its record was read.

        Refused if the record has changed since.
        """
        note = Delete(f"{self._paths.held_by(worker)}/{job_id}")
        return [note] if stored is None else [Check(self._paths.record(job_id), stored.version), note]

    def retention_note(self, record: Record) -> str:
        """Returns the path of the node by which stewards find an ended job when its retention is over."""
        at = self._paths.failed_job if record.state == FAILED else self._paths.ended_job
        return at(record.finished_ms, record.id)

    def forget(self, stored: VersionedRecord, note: str, *, has_executions: bool) -> list[Step]:
        """Deletes all nodes of an ended job; `note` is the path of its retention note."""
        paths, record = self._paths, stored.record
        assert record.state in TERMINAL, "only ended jobs are deleted"
        steps: list[Step] = [Delete(paths.result(record.id))]
        if record.payload_bytes:
            steps.append(Delete(paths.payload(record.id)))
        if record.extra is not None and record.extra.request_id:
            steps.append(Delete(paths.key(record.extra.request_id)))
        if has_executions:
            steps.append(Delete(paths.executions(record.id)))
        return [
            *steps,
            Delete(paths.record(record.id), stored.version),
            Delete(paths.indexed(record.created_ms, record.id)),
            Delete(note),
        ]

    def _wait(self, record: Record) -> list[Step]:
        if record.bucket == DELAYED:
            return [Create(self._paths.delayed_job(record.not_before_ms, record.id))]
        return self._lanes.steps(record)

    def _wait_again(self, stored: VersionedRecord, again: Record, *, has_bid: bool) -> tuple[Record, list[Step]]:
        """Puts a retried job among the delayed jobs; the steward posts it when it is due."""
        again = replace(again, bucket=DELAYED)
        put = Put(self._paths.record(again.id), encode(again), stored.version)
        return again, [put, *self._let_go(stored.record, has_bid=has_bid), *self._wait(again)]

    def _let_go(self, record: Record, *, has_bid: bool) -> list[Step]:
        held = Delete(f"{self._paths.held_by(record.worker)}/{record.id}")
        return [Delete(self._paths.bid(record.id)), held] if has_bid else [held]

    def _end(
        self, stored: VersionedRecord, result: Result, now_ms: int, before: list[Step], worker: str = ""
    ) -> tuple[Record, list[Step]]:
        """Ends a job, by an attempt of `worker` if one is given."""
        paths, record = self._paths, stored.record
        lifecycle.check(record.state, result.state)
        ended = replace(
            record,
            state=result.state,
            finished_ms=max(now_ms, record.started_ms, record.created_ms),
            failure_reason=result.failure_reason,
            is_reported=result.token != 0,
            worker="",
            ended_by=worker,
        )
        steps = [Put(paths.record(ended.id), encode(ended), stored.version), *before]
        steps.append(Create(paths.result(ended.id), encode(result)))
        if ended.extra is not None and ended.extra.unique_key:
            steps.append(Delete(paths.unique(ended.template.type, ended.extra.unique_key)))
        steps.append(Create(self.retention_note(ended)))
        return ended, steps


def bucket_of(posting: Posting) -> int:
    return bucket_number(posting.bucket)
