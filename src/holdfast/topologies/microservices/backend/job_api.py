"""`JobApi` in the gateway process, over the services that own jobs, waiting jobs and results.

Invariants: only its record determines the status of a job; a result is returned only once that status is terminal. The
gateway stores nothing that must survive it.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Sequence
from typing import Any, TypeVar

from holdfast import limits
from holdfast.clock import system_clock
from holdfast.core.commands import CancelReply, Submitted
from holdfast.core.lifecycle import RUNNING, TERMINAL, State
from holdfast.core.model import Template
from holdfast.core.outcomes import delay_text, end_text, result_summary
from holdfast.errors import InvalidArgumentError, UnavailableError
from holdfast.ledger.manual_retry import refusal_to_repeat, repeated
from holdfast.observe.logs import get_logger
from holdfast.ports import Explanation, JobDraft, JobQuery, JobView, Page, ResultView, SearchPage
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.proto.enums import job_status
from holdfast.server.grpc.internal_messages import extra_of, job_view, made, summary_view, template_of
from holdfast.topologies.microservices.backend.cancellation import Cancellation
from holdfast.topologies.microservices.backend.owner_clients import Owners
from holdfast.topologies.microservices.backend.submission import OwnerSubmission, SubmissionsInFlight, check_submission

#: Pauses between reads of a job while a client waits for it: short at first, then longer.
_POLL_MS_MIN, _POLL_MS_MAX, _POLL_FACTOR = 20, 200, 1.5

T = TypeVar("T")


async def _sleep(delay_ms: float) -> None:
    await asyncio.sleep(delay_ms / 1_000)


class ServiceJobs:
    """The operations that clients call, composed of calls to the owners."""

    def __init__(
        self,
        owners: Owners,
        now_ms: Callable[[], int] | None = None,
        sleep: Callable[[float], Awaitable[None]] = _sleep,
    ) -> None:
        self._owners = owners
        self._now_ms = now_ms or system_clock().wall_ms
        self._sleep = sleep
        self._in_flight = SubmissionsInFlight()
        self._begun: set[asyncio.Task[Any]] = set()

    async def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Creates a record and enqueues it, for each draft; completed even if the client is gone."""
        if refusal := check_submission(templates, drafts):
            raise refusal.error()
        submission = OwnerSubmission(self._owners, templates, drafts, self._now_ms())
        submitted = await self._to_its_end(submission.run(self._in_flight))
        if len(drafts) == 1 and (refusal := submitted.refusals.get(0)) and refusal.error().retryable:
            raise refusal.error()  # so that clients retry it like any other call
        return submitted

    async def cancel(self, job_id: str, reason: str) -> CancelReply:
        """Cancels the job; completed even if the client is gone."""
        return await self._to_its_end(Cancellation(self._owners, job_id, reason).run())

    async def _to_its_end(self, steps: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(steps)
        self._begun.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._begun.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it when the client is gone

    async def get(self, job_id: str) -> JobView:
        """Returns the job, as in its record."""
        return job_view(await self._record(job_id))

    async def result(self, job_id: str) -> ResultView:
        """Returns the result; a terminal job without an envelope is an anomaly, not an empty result."""
        return await self._result_of(await self._record(job_id))

    async def payload(self, job_id: str) -> bytes:
        """Returns the payload as submitted."""
        return (await self._record(job_id, without_payload=False)).options.payload

    async def explain(self, job_id: str) -> Explanation:
        """Explains the state from the record and the result only: the gateway does not know the workers."""
        record = await self._record(job_id)
        view = job_view(record)
        summary = (await self._result_of(record)).summary if view.state in TERMINAL else ""
        reason, sentence = why(view, self._now_ms(), summary)
        return Explanation(State(record.summary.status), reason, sentence)

    async def page(self, states: Collection[State], offset: int, size: int, *, newest_first: bool) -> Page:
        """Returns one page of the owner's listing; its jobs have only the fields of a listing."""
        request = made(
            pb.ListJobRecordsRequest,
            status_filter=[job_status(state) for state in states],
            page=made(public_pb.PageRequest, page_size=size, page_token=str(offset)),
            sort=_sort(newest_first=newest_first),
        )
        reply = await self._owners.job.records(request)
        return Page([summary_view(job) for job in reply.jobs], bool(reply.page.next_page_token))

    async def find(self, query: JobQuery, cursor: str, size: int) -> SearchPage:
        """Returns one part of the owner's search."""
        if size < 1:
            message = f"the size of a part must be at least 1, got {size}"
            raise InvalidArgumentError(message, reason="PAGE_SIZE_INVALID")
        search = made(
            pb.JobSearch,
            queue=query.queue,
            type=query.type,
            labels=query.labels,
            created_from_ms=query.created_from_ms,
            created_before_ms=query.created_before_ms,
            cursor=cursor,
        )
        request = pb.ListJobRecordsRequest(
            status_filter=sorted(job_status(state) for state in query.states),
            page=public_pb.PageRequest(page_size=min(size, limits.PAGE_SIZE_MAX)),
            sort=_sort(newest_first=not query.oldest_first),
            search=search,
        )
        reply = await self._owners.job.records(request)
        return SearchPage([job_view(record) for record in reply.records], reply.next_cursor)

    async def watch(self, job_id: str) -> AsyncGenerator[JobView, None]:
        """Polls the record, and yields the job when it has changed; changes between two polls are merged."""
        seen: JobView | None = None
        wait_ms: float = _POLL_MS_MIN
        while seen is None or seen.state not in TERMINAL:
            if seen is not None:
                await self._sleep(wait_ms)
                wait_ms = min(wait_ms * _POLL_FACTOR, _POLL_MS_MAX)
            view = await self.get(job_id)
            if view != seen:
                seen, wait_ms = view, _POLL_MS_MIN
                yield view

    async def settled(self, job_id: str) -> tuple[JobView, ResultView]:
        """Polls the record until the job is terminal, and returns it with its result."""
        wait_ms: float = _POLL_MS_MIN
        while State((record := await self._record(job_id)).summary.status) not in TERMINAL:
            await self._sleep(wait_ms)
            wait_ms = min(wait_ms * _POLL_FACTOR, _POLL_MS_MAX)
        return job_view(record), await self._result_of(record)

    async def retry(self, job_id: str, request_id: str = "") -> str:
        """Submits a copy of the job; a call with the same request id returns the same copy."""
        record = await self._record(job_id, without_payload=False)
        if refusal := refusal_to_repeat(job_id, record.summary.status):
            raise refusal.error()
        template, extra = template_of(record.spec, record.options), extra_of(record.spec, record.options)
        submitted = await self.submit([template], [repeated(job_id, record.options.payload, extra, request_id)])
        for refusal in submitted.refusals.values():
            raise refusal.error()
        return submitted.job_ids[0]

    async def _record(self, job_id: str, *, without_payload: bool = True) -> pb.GetJobRecordResponse:
        request = made(pb.GetJobRecordRequest, job_id=job_id, without_payload=without_payload)
        return await self._owners.job.record(request)

    async def _result_of(self, record: pb.GetJobRecordResponse) -> ResultView:
        job_id, state = record.summary.job_id, State(record.summary.status)
        if state not in TERMINAL:
            return ResultView(state)
        envelope = await self._owners.result.envelope(pb.GetResultRequest(job_id=job_id))
        if not envelope.found:
            message = f"job {job_id!r} has ended {state.name}, but its result is missing"
            get_logger().error("anomaly", what="result_missing", job_id=job_id, message=message)
            raise UnavailableError(message, reason="RESULT_MISSING")
        if envelope.terminal_status != job_status(state):
            message = f"the record says {state.name}, the envelope {State(envelope.terminal_status).name}"
            get_logger().error("anomaly", what="result_differs", job_id=job_id, message=message)
        summary = result_summary(state, reason=record.failure_reason, summary=envelope.output_summary)
        return ResultView(state, envelope.output_bytes, summary, envelope.runtime_ms)


def _sort(*, newest_first: bool) -> public_pb.JobSort:
    return public_pb.CREATED_AT_DESC if newest_first else public_pb.CREATED_AT_ASC


def why(job: JobView, now_ms: int, summary: str = "") -> tuple[str, str]:
    """Returns a stable reason and a sentence that explain the state of a job from its record.

    The gateway does not know the workers, so some reasons of the other backends are missing here. `summary` is that of
    the result, once the job has ended.
    """
    if job.state in TERMINAL:
        return "ENDED", end_text(job.state, job.attempts, job.failure_reason, summary)
    if job.state == RUNNING:
        asked = "; it was asked to stop" if job.cancel_requested else ""
        return "RUNNING", f"it runs: leased by {job.worker}, attempt {job.attempts}{asked}"
    wait_ms = job.not_before_ms - now_ms
    if wait_ms > 0:
        return "DELAYED", delay_text(wait_ms, job.failures)
    sentence = f"it waits in the queue {job.template.queue!r} for a free slot of a worker that knows its type"
    return "WAITING_IN_QUEUE", sentence
