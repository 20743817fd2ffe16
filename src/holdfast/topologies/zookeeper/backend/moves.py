"""Every change of a job, as the steps of one transaction.

Invariants:
- Each one puts the record under the version it was read under, so of two changes at a time one is refused and does
  nothing at all.
- A job waits in exactly one place or runs under exactly one bid, and what has ended has exactly one result.
- What becomes of an attempt is decided by `core/outcomes.py`; here it is only written down.
"""

from msgspec.structs import replace

from holdfast.core import lifecycle
from holdfast.core.lifecycle import CANCELED, FAILED, QUEUED, RUNNING, TERMINAL
from holdfast.core.model import Result
from holdfast.core.outcomes import LOSSES_SPENT, revocation_of
from holdfast.topologies.zookeeper.backend.lanes import NodeLanes
from holdfast.topologies.zookeeper.backend.paths import Paths, Posting, bucket_number
from holdfast.topologies.zookeeper.backend.records import DELAYED, Kept, Record, encode
from holdfast.topologies.zookeeper.backend.transactions import Check, Create, Delete, Put, Step


class Moves:
    """The steps, for one root."""

    def __init__(self, paths: Paths, lanes: NodeLanes) -> None:
        self._paths = paths
        self._lanes = lanes

    def submit(self, record: Record, payload: bytes) -> list[Step]:
        """All nodes of a new job. What may exist already comes first, in the order in which it is looked at."""
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

    def take(self, kept: Kept, posting: Posting, worker: str, now_ms: int) -> tuple[Record, list[Step]]:
        """The bid: it fails for a job that was deleted, canceled or taken."""
        paths, record = self._paths, kept.record
        lifecycle.check(record.state, RUNNING)
        taken = replace(
            record,
            state=RUNNING,
            place=posting.place,
            token=0,
            grants=record.grants + 1,
            # Clocks differ by milliseconds, and history must not.
            started_ms=max(now_ms, record.created_ms, record.not_before_ms),
            worker=worker,
        )
        return taken, [
            Delete(paths.posting(record.lane, posting)),
            Put(paths.record(record.id), encode(taken), kept.version),
            Create(paths.bid(record.id), worker.encode(), ephemeral=True),
            Create(f"{paths.held_by(worker)}/{record.id}"),
        ]

    def adopt(self, kept: Kept, *, is_bid_there: bool) -> list[Step]:
        """The same lease for another session of its worker."""
        paths, record = self._paths, kept.record
        bid = paths.bid(record.id)
        old: list[Step] = [Delete(bid)] if is_bid_there else []
        put = Put(paths.record(record.id), encode(record), kept.version)
        return [put, *old, Create(bid, record.worker.encode(), ephemeral=True)]

    def report(self, kept: Kept, result: Result, now_ms: int, *, has_bid: bool = True) -> tuple[Record, list[Step]]:
        """What a report leads to: an end, or another try."""
        record = kept.record
        if result.state in TERMINAL:
            return self._end(kept, result, now_ms, self._let_go(record, has_bid=has_bid), record.worker)
        lifecycle.check(record.state, QUEUED)
        again = replace(
            record, state=QUEUED, failures=record.failures + 1, not_before_ms=result.not_before_ms, worker=""
        )
        return self._wait_again(kept, again, has_bid=has_bid)

    def give_back(
        self, kept: Kept, why: str, now_ms: int, *, is_spent: bool, has_bid: bool
    ) -> tuple[Record, list[Step]]:
        """What the loss of a bid leads to: another worker, or the end."""
        record = kept.record
        revocation = revocation_of(record, is_spent=is_spent)
        lost = replace(record, losses=record.losses + revocation.is_spent, worker="")
        if revocation.state == QUEUED:
            lifecycle.check(record.state, QUEUED)
            back = replace(lost, state=QUEUED, bucket=-1)
            put = Put(self._paths.record(record.id), encode(back), kept.version)
            return back, [put, *self._let_go(record, has_bid=has_bid), *self._lanes.steps_back(back)]
        tries = lost.failures + lost.losses
        summary = record.cancel_reason or f"its lease ended ({why}) after {tries} attempts"
        reason = LOSSES_SPENT if revocation.state == FAILED else ""
        result = Result(0, revocation.state, summary=summary, failure_reason=reason)
        before = self._let_go(record, has_bid=has_bid)
        return self._end(Kept(lost, kept.version), result, now_ms, before, record.worker)

    def cancel_queued(self, kept: Kept, waits_at: str, reason: str, now_ms: int) -> tuple[Record, list[Step]]:
        """At once: what waits never runs."""
        canceled = replace(kept.record, cancel_requested=True, cancel_reason=reason)
        result = Result(0, CANCELED, summary=reason)
        return self._end(Kept(canceled, kept.version), result, now_ms, [Delete(waits_at)])

    def ask_to_stop(self, kept: Kept, reason: str, now_ms: int, *, is_heard: bool) -> tuple[Record, list[Step]]:
        """The flag, and a word for the worker, if it is one that listens."""
        record = kept.record
        asked = replace(record, cancel_requested=True, cancel_reason=reason, cancel_ms=now_ms)
        put = Put(self._paths.record(record.id), encode(asked), kept.version)
        word = [Create(f"{self._paths.asked_of(record.worker)}/{record.id}")] if is_heard else []
        return asked, [put, *word]

    def due(self, kept: Kept, bucket: int) -> tuple[Record, list[Step]]:
        """From those that wait for their time to those that wait for a worker."""
        record = kept.record
        waiting = replace(record, bucket=bucket)
        return waiting, [
            Delete(self._paths.delayed_job(record.not_before_ms, record.id)),
            Put(self._paths.record(record.id), encode(waiting), kept.version),
            *self._wait(waiting),
        ]

    def strike_out(self, kept: Kept | None, *, job_id: str, worker: str) -> list[Step]:
        """A note under `held` of a job that was not this worker's when it was read; refused if it may be by now."""
        note = Delete(f"{self._paths.held_by(worker)}/{job_id}")
        return [note] if kept is None else [Check(self._paths.record(job_id), kept.version), note]

    def retention_note(self, record: Record) -> str:
        """The node by which stewards find an ended job when its retention is over."""
        at = self._paths.failed_job if record.state == FAILED else self._paths.ended_job
        return at(record.finished_ms, record.id)

    def forget(self, kept: Kept, note: str, *, has_executions: bool) -> list[Step]:
        """All nodes of a job that has ended; `note` is where its retention note is."""
        paths, record = self._paths, kept.record
        assert record.state in TERMINAL, "only what has ended is forgotten"
        steps: list[Step] = [Delete(paths.result(record.id))]
        if record.payload_bytes:
            steps.append(Delete(paths.payload(record.id)))
        if record.extra is not None and record.extra.request_id:
            steps.append(Delete(paths.key(record.extra.request_id)))
        if has_executions:
            steps.append(Delete(paths.executions(record.id)))
        return [
            *steps,
            Delete(paths.record(record.id), kept.version),
            Delete(paths.indexed(record.created_ms, record.id)),
            Delete(note),
        ]

    def _wait(self, record: Record) -> list[Step]:
        if record.bucket == DELAYED:
            return [Create(self._paths.delayed_job(record.not_before_ms, record.id))]
        return self._lanes.steps(record)

    def _wait_again(self, kept: Kept, again: Record, *, has_bid: bool) -> tuple[Record, list[Step]]:
        """The bucket of `again` is where it goes: the steward takes it from there when it is due."""
        again = replace(again, bucket=DELAYED)
        put = Put(self._paths.record(again.id), encode(again), kept.version)
        return again, [put, *self._let_go(kept.record, has_bid=has_bid), *self._wait(again)]

    def _let_go(self, record: Record, *, has_bid: bool) -> list[Step]:
        held = Delete(f"{self._paths.held_by(record.worker)}/{record.id}")
        return [Delete(self._paths.bid(record.id)), held] if has_bid else [held]

    def _end(
        self, kept: Kept, result: Result, now_ms: int, before: list[Step], worker: str = ""
    ) -> tuple[Record, list[Step]]:
        """The end of a job, by an attempt of this worker if one is named."""
        paths, record = self._paths, kept.record
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
        steps = [Put(paths.record(ended.id), encode(ended), kept.version), *before]
        steps.append(Create(paths.result(ended.id), encode(result)))
        if ended.extra is not None and ended.extra.unique_key:
            steps.append(Delete(paths.unique(ended.template.type, ended.extra.unique_key)))
        steps.append(Create(self.retention_note(ended)))
        return ended, steps


def bucket_of(posting: Posting) -> int:
    return bucket_number(posting.bucket)
