"""Submits jobs: several jobs per transaction, and many transactions in flight.

Invariants:
- All nodes of a job are created together or not at all, so a reader that finds one of them finds a whole job.
- The id is generated before the first try. If the reply to a try is lost, the record under that id shows whether the
  job was created; it is tried again only if not.
- Jobs of one lane are posted in the order of the batch: jobs for the next bucket are sent once all of this bucket have
  a reply.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.core.commands import Refusal, Submitted
from holdfast.core.model import JobRecord, NewJob, Template
from holdfast.core.submission import is_same_submission, reused
from holdfast.core.validation import bad_given_id, check_batch, check_job, check_template, is_given_id
from holdfast.errors import InvalidArgumentError, UnavailableError
from holdfast.ledger.job_ids import random_minter
from holdfast.ports import JobDraft
from holdfast.topologies.zookeeper import ensemble_limits
from holdfast.topologies.zookeeper.backend.node_changes import NodeChanges
from holdfast.topologies.zookeeper.backend.paths import NodeLane, lane_of
from holdfast.topologies.zookeeper.backend.records import DELAYED, Record, VersionedRecord
from holdfast.topologies.zookeeper.backend.transactions import (
    Check,
    RefusedError,
    Step,
    StepFailure,
    TransactionResult,
    check_size,
    size_of,
)
from holdfast.topologies.zookeeper.backend.transition_log import log_submitted

#: Maximum number of jobs per transaction: the ensemble does nothing else meanwhile.
_JOBS_PER_TRANSACTION = 32
_TRIES_MAX = 20

mint = random_minter()


class _SubmissionRow(NamedTuple):
    """One job of a submission, and the steps that create it."""

    number: int
    job: NewJob
    record: Record
    steps: list[Step]


class NodeSubmission:
    """One submission in progress."""

    def __init__(self, node_changes: NodeChanges, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> None:
        self._node_changes = node_changes
        self._connection, self._paths = node_changes.connection, node_changes.paths
        self._templates, self._drafts = templates, drafts
        self._now_ms = node_changes.connection.now_ms()
        self._ids = [""] * len(drafts)
        self._refusals: dict[int, Refusal] = {}
        self._existing: set[int] = set()

    async def run(self) -> Submitted:
        """Submits all drafts; `UnavailableError` if the outcome of any draft is unknown."""
        refusal = check_batch([draft.payload for draft in self._drafts], len(self._templates))
        refusal = refusal or next(filter(None, map(check_template, self._templates)), None)
        if refusal:
            raise refusal.error()
        new = self._sorted_out()
        minted = iter(mint(sum(not job.id for job in new.values())))
        rows = {index: (job if job.id else _with_id(job, next(minted))) for index, job in new.items()}
        await self._post_all(rows)
        for index in self._refusals:
            self._ids[index] = ""
        return Submitted(self._ids, self._now_ms, self._refusals, frozenset(self._existing))

    def _sorted_out(self) -> dict[int, NewJob]:
        """Returns the valid jobs by index, and refuses the others."""
        good: dict[int, NewJob] = {}
        for index, draft in enumerate(self._drafts):
            due_ms = max(draft.not_before_ms, self._now_ms + draft.delay_ms if draft.delay_ms else 0)
            job = NewJob(draft.id, draft.template, draft.payload, due_ms, draft.extra)
            refusal = check_job(_with_id(job, draft.id or "new"), len(self._templates), self._now_ms)
            if refusal is None and draft.id and not is_given_id(draft.id):
                refusal = bad_given_id(draft.id)
            if refusal is None:
                good[index] = job
            else:
                self._refusals[index] = refusal
        return good

    async def _post_all(self, rows: dict[int, NewJob]) -> None:
        """Posts the jobs in windows, each of which ends at the end of a bucket."""
        waiting = deque(rows.items())
        while waiting:
            window: list[_SubmissionRow] = []
            places: dict[NodeLane, int] = {}
            while waiting and len(window) < ensemble_limits.BUCKET_JOBS:
                index, job = waiting[0]
                lane = lane_of(self._templates[job.template])
                if lane in places and self._node_changes.lanes.is_full(lane):
                    break  # the bucket is closed after all of its jobs are posted
                row = await self._row(index, job)
                bucket = row.record.bucket if row is not None else DELAYED
                if bucket != DELAYED and places.setdefault(lane, bucket) != bucket:
                    break  # another process has closed the bucket
                waiting.popleft()
                if row is not None:
                    window.append(row)
            sent = [(group, self._connection.transact(_steps(group))) for group in _groups(window)]
            await ended_all([asyncio.ensure_future(self._settle_group(group, made)) for group, made in sent])

    async def _row(self, index: int, job: NewJob) -> "_SubmissionRow | None":
        """Returns the row of a job; None if the job is too large."""
        record = await self._record(job)
        steps = self._node_changes.transactions.submit(record, job.payload)
        try:
            check_size(steps, "a job's payload")
        except InvalidArgumentError as error:
            self._refusals[index] = Refusal(error.code, error.reason, error.message)
            return None
        await self._node_changes.lanes.ensure_minute(self._paths.indexed(record.created_ms, record.id))
        return _SubmissionRow(index, job, record, steps)

    async def _record(self, job: NewJob) -> Record:
        template = self._templates[job.template]
        record = Record(job.id, template, self._now_ms, job.extra, len(job.payload), not_before_ms=job.not_before_ms)
        bucket = DELAYED if job.not_before_ms > self._now_ms else await self._node_changes.lanes.bucket(record.lane)
        return Record(
            job.id, template, self._now_ms, job.extra, len(job.payload), not_before_ms=job.not_before_ms, bucket=bucket
        )

    # -- outcomes

    async def _settle_group(self, group: list["_SubmissionRow"], made: "asyncio.Future[TransactionResult]") -> None:
        """Settles a group at once, or one by one if it was refused, so that one job does not affect the others."""
        if len(group) == 1:
            return await self._settle(group[0], made)
        is_unsure = False
        try:
            done = await made
        except RefusedError as error:
            if isinstance(error.step, Check):
                self._node_changes.lanes.forget(group[0].record.lane)
        except UnavailableError:
            is_unsure = True
            await self._connection.connected()
        else:
            posted = iter(path for path in done.paths if path.startswith(f"{self._paths.waiting}/"))
            for row in group:
                self._note_made(row.number, row.job)
                if row.record.bucket != DELAYED:
                    self._node_changes.lanes.posted(row.record.lane, next(posted))
            return None
        again = [(row, self._connection.transact(row.steps)) for row in group]
        await ended_all([asyncio.ensure_future(self._settle(row, made, is_unsure=is_unsure)) for row, made in again])
        return None

    async def _settle(
        self, row: "_SubmissionRow", made: "asyncio.Future[TransactionResult]", *, is_unsure: bool = False
    ) -> None:
        """Tries until the job is created or refused."""
        index, job, record, steps = row
        for _ in range(_TRIES_MAX):
            try:
                done = await made
            except RefusedError as error:
                if error.why is StepFailure.EXISTS:
                    if await self._is_settled_by(index, job, error, is_unsure=is_unsure):
                        return
                elif isinstance(error.step, Check):
                    self._node_changes.lanes.forget(record.lane)
                    record = await self._record(job)
                    steps = self._node_changes.transactions.submit(record, job.payload)
                elif not await self._node_changes.mend(error, record.lane):
                    raise
            except UnavailableError:
                is_unsure = True
                await self._connection.connected()
                self._connection.sync()
            else:
                self._note_made(index, job)
                if record.bucket != DELAYED:
                    self._node_changes.lanes.posted(record.lane, done.paths[-1])
                return
            made = self._connection.transact(steps)
        raise UnavailableError("the job could not be posted; try again", reason="CONTENDED")

    async def _is_settled_by(self, index: int, job: NewJob, error: RefusedError, *, is_unsure: bool) -> bool:
        """Resolves a conflict with an existing job: this one, if the reply to a try was lost, or an older one."""
        path, paths, extra = error.step.path, self._paths, job.extra
        request_id, unique_key = (extra.request_id, extra.unique_key) if extra else ("", "")
        template = self._templates[job.template]
        if path == paths.record(job.id):
            what, key, found_id = "job id", job.id, job.id
        elif request_id and path == paths.key(request_id):
            what, key, found_id = "request id", request_id, await self._named_by(path)
        elif unique_key and path == paths.unique(template.type, unique_key):
            found_id = await self._named_by(path)
            if found_id:
                self._find(index, job, found_id, is_own=found_id == job.id)
            return bool(found_id)
        else:
            raise error
        known = await self._node_changes.read(found_id) if found_id else None
        if known is None:
            return False  # the other job is gone: try again
        payload = await self._connection.get(paths.payload(found_id)) if known.record.payload_bytes else None
        if is_same_submission(_as_job(known, payload.data if payload else b""), template, job):
            self._find(index, job, found_id, is_own=is_unsure and found_id == job.id)
        else:
            self._refusals[index] = reused(what, key)
        return True

    async def _named_by(self, path: str) -> str:
        self._connection.sync()
        node = await self._connection.get(path)
        return node.data.decode() if node else ""

    def _find(self, index: int, job: NewJob, found_id: str, *, is_own: bool) -> None:
        if is_own:
            self._note_made(index, job)
        else:
            self._ids[index] = found_id
            self._existing.add(index)

    def _note_made(self, index: int, job: NewJob) -> None:
        self._ids[index] = job.id
        log_submitted(job.id, priority=self._templates[job.template].priority)


def _with_id(job: NewJob, job_id: str) -> NewJob:
    return NewJob(job_id, job.template, job.payload, job.not_before_ms, job.extra)


def _as_job(stored: VersionedRecord, payload: bytes) -> JobRecord:
    """Returns a job with the fields that are compared between submissions."""
    record = stored.record
    return JobRecord(record.id, record.template, payload, 0, record.created_ms, extra=record.extra)


def _groups(window: list[_SubmissionRow]) -> Iterator[list[_SubmissionRow]]:
    """Yields the jobs of each transaction; a job with keys may be refused because of them, and goes alone."""
    group: list[_SubmissionRow] = []
    size = 0
    for row in window:
        extra, own = row.job.extra, size_of(row.steps)
        is_alone = extra is not None and bool(extra.request_id or extra.unique_key)
        is_full = len(group) == _JOBS_PER_TRANSACTION or size + own > ensemble_limits.TRANSACTION_BYTES_MAX
        if group and (is_alone or is_full):
            yield group
            group, size = [], 0
        if is_alone:
            yield [row]
        else:
            group, size = [*group, row], size + own
    if group:
        yield group


def _steps(group: list[_SubmissionRow]) -> list[Step]:
    return [step for row in group for step in row.steps]


async def ended_all(tasks: list["asyncio.Task[None]"]) -> None:
    """Waits for all tasks, then raises the first error; asyncio does not log the others."""
    for task in tasks:
        task.add_done_callback(_take_note)
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        task.result()


def _take_note(task: "asyncio.Task[None]") -> None:
    """Retrieves the exception so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
