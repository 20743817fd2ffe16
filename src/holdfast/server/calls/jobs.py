"""`holdfast.v1.JobService`, once, for every carrier."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TypeVar, cast

from holdfast import limits
from holdfast.core.capabilities import Capability
from holdfast.core.history import Entry
from holdfast.core.lifecycle import TERMINAL
from holdfast.ports import FeedPart, ResultView
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.proto.enums import job_status
from holdfast.server.backend import Backend
from holdfast.server.request_checks import checked_id, checked_size
from holdfast.server.request_values import draft_of, query_of, template_of
from holdfast.server.views import entry_message, job_message, refusal_message

T = TypeVar("T")

#: Entries in one message of the feed, so that none outgrows what a message may be.
_ENTRIES_MAX = 1_000


class JobCalls:
    """Jobs: submission, looking, waiting, and what becomes of them."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._jobs = backend.jobs

    async def submit(self, request: pb.SubmitJobsRequest) -> pb.SubmitJobsResponse:
        """Accepts a batch as one event; what cannot be accepted is refused one by one."""
        templates = [template_of(template) for template in request.templates]
        submitted = await self._jobs.submit(templates, [draft_of(job) for job in request.jobs])
        response = pb.SubmitJobsResponse(job_ids=submitted.job_ids, accepted_at_ms=submitted.at_ms)
        if submitted.refusals:
            response.refusals.extend(refusal_message(*refused) for refused in submitted.refusals.items())
        if submitted.existing:
            response.existing.extend(sorted(submitted.existing))
        return response

    async def explain(self, request: pb.ExplainJobRequest) -> pb.ExplainJobResponse:
        """Why a job is where it is."""
        explanation = await self._jobs.explain(checked_id(request.job_id))
        return pb.ExplainJobResponse(
            job_id=request.job_id,
            status=job_status(explanation.state),
            reason=explanation.reason,
            explanation=explanation.sentence,
        )

    async def get(self, request: pb.GetJobRequest) -> pb.Job:
        """The job; its result is read after it, and cannot change any more once it has ended."""
        view = await self._jobs.get(checked_id(request.job_id))
        job = job_message(view, await self._jobs.result(view.id) if view.state in TERMINAL else None)
        if not request.with_output:
            job.ClearField("output")
        if request.with_payload:
            job.payload = await self._jobs.payload(view.id)
        return job

    async def find(self, request: pb.FindJobsRequest) -> pb.FindJobsResponse:
        """Jobs that match; fewer of them where all their labels would not fit into one message."""
        query, size = query_of(request), checked_size(request.page_size)
        while True:
            found = await self._jobs.find(query, request.cursor, size)
            response = pb.FindJobsResponse(jobs=map(job_message, found.jobs), next_cursor=found.cursor)
            if size == 1 or response.ByteSize() <= limits.BATCH_BYTES_MAX:
                return response
            size = max(1, size // 4)

    async def wait(self, request: pb.AwaitJobRequest) -> pb.Job:
        """The job with its output, once it has ended."""
        return job_message(*await self._jobs.settled(checked_id(request.job_id)))

    async def watch(self, request: pb.WatchJobRequest) -> AsyncIterator[pb.Job]:
        """The job after each change; the last one says how it ended, without the output."""
        async with closing(self._jobs.watch(checked_id(request.job_id))) as views:
            async for view in views:
                result = await self._jobs.result(view.id) if view.state in TERMINAL else None
                yield job_message(view, result and ResultView(result.state, b"", result.summary, result.runtime_ms))

    async def cancel(self, request: public_pb.CancelJobRequest) -> public_pb.CancelJobResponse:
        """Ends a queued job, asks a running one to stop."""
        reply = await self._jobs.cancel(checked_id(request.job_id), request.reason)
        return public_pb.CancelJobResponse(
            job_id=request.job_id,
            accepted=True,
            current_status=job_status(reply.state),
            already_terminal=reply.was_terminal,
        )

    async def retry(self, request: pb.RetryJobRequest) -> pb.RetryJobResponse:
        """A new job like one that has ended."""
        return pb.RetryJobResponse(job_id=await self._jobs.retry(checked_id(request.job_id), request.request_id))

    async def history(self, request: pb.GetHistoryRequest) -> pb.GetHistoryResponse:
        """Everything that happened to one job."""
        entries = await self._backend.history.history(checked_id(request.job_id))
        return pb.GetHistoryResponse(entries=map(entry_message, entries))

    async def feed(self, request: pb.FeedRequest) -> AsyncIterator[pb.FeedResponse]:
        """Everything that happens, from a position on."""
        feed = self._backend.capability(self._backend.feed, Capability.FEED)
        async with closing(feed.feed(None if request.from_now else request.after)) as parts:
            async for part in parts:
                for message in feed_messages(part):
                    yield message


def closing(iterator: AsyncIterator[T]) -> AbstractAsyncContextManager[AsyncIterator[T]]:
    """Ends the iterator with the block: a port's streams are generators, which would else wait to be collected."""
    return aclosing(cast("AsyncGenerator[T, None]", iterator))


def feed_messages(part: FeedPart) -> Iterator[pb.FeedResponse]:
    """The part in messages of bounded size; each names a position up to which everything was told."""
    entries = part.entries
    while len(entries) > _ENTRIES_MAX:
        told, entries = entries[:_ENTRIES_MAX], entries[_ENTRIES_MAX:]
        yield _feed_message(told, entries[0].position - 1)
    yield _feed_message(entries, part.position)


def _feed_message(entries: list[Entry], position: int) -> pb.FeedResponse:
    return pb.FeedResponse(entries=map(entry_message, entries), position=position)
