"""Submits jobs across two owners: creates the record first, then enqueues the job.

Invariants:
- A record is deleted only by the submission that created it, and only while no other submission has found it.
- A job that was reported as accepted is in the queue, or has moved on; or it existed before, and the sweep repairs it.
- A submission that has begun is completed, even if its caller is gone.
"""

import asyncio
from collections.abc import Sequence

from holdfast.core.commands import Refusal, Submitted
from holdfast.core.model import NewJob, Template
from holdfast.core.validation import bad_given_id, check_batch, check_job, check_template, is_given_id
from holdfast.errors import Code, HoldfastError, UnavailableError
from holdfast.observe.logs import get_logger
from holdfast.ports import JobDraft
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.server.grpc.internal_messages import create_request, enqueue_again, enqueue_request
from holdfast.topologies.microservices.backend.owner_clients import Owners

#: Maximum number of concurrent enqueues of one submission.
_ENQUEUES_MAX = 32


class SubmissionsInFlight:
    """The keys of submissions in progress in this gateway, whose outcome is not known yet."""

    def __init__(self) -> None:
        self._keys: set[str] = set()

    def enter(self, keys: frozenset[str]) -> frozenset[str]:
        """Adds the keys that no other submission has, and returns them."""
        mine = keys - self._keys
        self._keys |= mine
        return mine

    def leave(self, mine: frozenset[str]) -> None:
        """Removes the keys."""
        self._keys -= mine


def check_submission(templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Refusal | None:
    """Returns the first problem of a submission as a whole, or None."""
    refusal = check_batch([draft.payload for draft in drafts], len(templates))
    return refusal or next(filter(None, map(check_template, templates)), None)


class OwnerSubmission:
    """One submission in progress. Records are created one by one, so that they have the order of the batch."""

    def __init__(self, owners: Owners, templates: Sequence[Template], drafts: Sequence[JobDraft], now_ms: int) -> None:
        self._owners = owners
        self._templates, self._drafts = templates, drafts
        self._now_ms = now_ms
        self._ids = [""] * len(drafts)
        self._refusals: dict[int, Refusal] = {}
        self._existing: set[int] = set()
        #: The draft that created each record, by job id: duplicates in the batch share its outcome.
        self._makers: dict[str, int] = {}
        self._created_ms = 0
        self._room = asyncio.Semaphore(_ENQUEUES_MAX)

    async def run(self, in_flight: SubmissionsInFlight) -> Submitted:
        """Submits all drafts; returns once every outcome is known."""
        mine = in_flight.enter(frozenset(filter(None, map(_key, self._drafts))))
        try:
            async with asyncio.TaskGroup() as enqueues:
                await self._create_all(mine, enqueues)
        finally:
            in_flight.leave(mine)
        for index, job_id in enumerate(self._ids):  # duplicates share the outcome of the draft that created the record
            maker = self._makers.get(job_id, index)
            if maker in self._refusals:
                self._refusals.setdefault(index, self._refusals[maker])
        for index in self._refusals:
            self._ids[index] = ""
        existing = frozenset(self._existing - self._refusals.keys())
        return Submitted(self._ids, self._created_ms or self._now_ms, self._refusals, existing)

    async def _create_all(self, mine: frozenset[str], enqueues: asyncio.TaskGroup) -> None:
        for index, draft in enumerate(self._drafts):
            refusal = self._check(draft, mine)
            if refusal is None:
                try:
                    await self._create(index, draft, enqueues)
                except HoldfastError as error:
                    refusal = Refusal(error.code, error.reason, error.message)
                    if error.retryable:  # the owner is unavailable: do not try the rest
                        self._refusals.update(dict.fromkeys(range(index, len(self._drafts)), refusal))
                        return
            if refusal is not None:
                self._refusals[index] = refusal

    def _check(self, draft: JobDraft, mine: frozenset[str]) -> Refusal | None:
        """Returns the first problem of a draft that can be found without its owner, or None."""
        due_ms = max(draft.not_before_ms, self._now_ms + draft.delay_ms if draft.delay_ms else 0)
        job = NewJob(draft.id or "new", draft.template, draft.payload, due_ms, draft.extra)
        refusal = check_job(job, len(self._templates), self._now_ms)
        if refusal is None and draft.id and not is_given_id(draft.id):
            refusal = bad_given_id(draft.id)
        if refusal is None and (key := _key(draft)) and key not in mine:
            message = "the same submission is under way and its outcome is not known yet; try again"
            refusal = Refusal(Code.UNAVAILABLE, "SUBMIT_IN_FLIGHT", message)
        return refusal

    async def _create(self, index: int, draft: JobDraft, enqueues: asyncio.TaskGroup) -> None:
        template = self._templates[draft.template]
        request = create_request(template, draft, self._now_ms)
        made = await self._owners.job.create(request)
        self._ids[index] = job_id = made.job_id
        self._created_ms = max(self._created_ms, made.created_at_ms)
        if made.existing:
            self._existing.add(index)
            if made.status == public_pb.QUEUED and job_id not in self._makers:
                enqueues.create_task(self._complete(job_id))
            return
        self._makers[job_id] = index
        due_ms = request.options.not_before_ms
        if request.options.delay_ms:
            due_ms = max(due_ms, made.created_at_ms + request.options.delay_ms)
        created_ms = made.created_at_ms
        place = enqueue_request(
            job_id, template, not_before_ms=due_ms, order=made.order, created_ms=created_ms, now_ms=created_ms
        )
        enqueues.create_task(self._enqueue(index, place))

    async def _complete(self, job_id: str) -> None:
        """Enqueues an existing QUEUED job, in case its creator did not; the sweep would do so later."""
        try:
            async with self._room:
                asked = pb.GetJobRecordRequest(job_id=job_id, without_payload=True)
                record = await self._owners.job.record(asked)
                if record.summary.status == public_pb.QUEUED:
                    place = enqueue_again(record)
                    await self._owners.queue.enqueue(place)
        except HoldfastError as error:
            get_logger().warning("existing_not_enqueued", job_id=job_id, message=error.message)

    async def _enqueue(self, index: int, place: pb.EnqueueJobRequest) -> None:
        async with self._room:
            try:
                answer = await self._owners.queue.enqueue(place)
                if not answer.accepted:
                    raise UnavailableError("the queue service did not accept the job; try again", reason="NOT_ENQUEUED")
            except HoldfastError as error:
                if refusal := await self._undo(place.job_id, error):
                    self._refusals[index] = refusal

    async def _undo(self, job_id: str, error: HoldfastError) -> Refusal | None:
        """Deletes the record; returns None if the job has moved on, because then the enqueue had succeeded."""
        refusal = Refusal(Code.UNAVAILABLE, error.reason, error.message)
        request = pb.DeleteJobIfStatusRequest(job_id=job_id, expected_status=public_pb.QUEUED)
        try:
            answer = await self._owners.job.delete(request)
        except HoldfastError as failure:
            what = "a job that could not be enqueued could not be deleted either; the sweep enqueues it"
            _anomaly("compensation_failed", job_id, what, error=failure.message)
            return refusal
        if answer.deleted:
            return refusal
        if answer.current_status == public_pb.QUEUED:
            # Another submission has found it and may rely on it: it stays, and the sweep enqueues it.
            _anomaly("compensation_refused", job_id, "a job that could not be enqueued was found by another submission")
            return refusal
        return None if answer.current_status else refusal


def _key(draft: JobDraft) -> str:
    """Returns the key that identifies a repeated submission; empty if it has none."""
    if draft.extra is not None and draft.extra.request_id:
        return f"request {draft.extra.request_id}"
    return f"id {draft.id}" if draft.id else ""


def _anomaly(what: str, job_id: str, message: str, **details: str) -> None:
    get_logger().error("anomaly", what=what, job_id=job_id, message=message, **details)
