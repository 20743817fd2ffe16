"""Methods of `holdfast.v1.JobService`."""

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
from holdfast.server.grpc.requests import draft_of, query_of, template_of
from holdfast.server.grpc.responses import entry_message, job_message, refusal_message
from holdfast.server.request_checks import checked_id, checked_size

T = TypeVar("T")

#: Entries in one message of the feed, so that it stays below the size limit of a message.
_ENTRIES_MAX = 1_000


class JobCalls:
    """The operations on jobs."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._jobs = backend.jobs

    async def submit(self, request: pb.SubmitJobsRequest) -> pb.SubmitJobsResponse:
        """Submits a batch as one event; jobs that cannot be accepted are refused individually."""
        templates = [template_of(template) for template in request.templates]
        submitted = await self._jobs.submit(templates, [draft_of(job) for job in request.jobs])
        response = pb.SubmitJobsResponse(job_ids=submitted.job_ids, accepted_at_ms=submitted.at_ms)
        if submitted.refusals:
            response.refusals.extend(refusal_message(*refused) for refused in submitted.refusals.items())
        if submitted.existing:
            response.existing.extend(sorted(submitted.existing))
        return response

    async def explain(self, request: pb.ExplainJobRequest) -> pb.ExplainJobResponse:
        """Explains the current state of a job."""
        explanation = await self._jobs.explain(checked_id(request.job_id))
        return pb.ExplainJobResponse(
            job_id=request.job_id,
            status=job_status(explanation.state),
            reason=explanation.reason,
            explanation=explanation.sentence,
        )

    async def get(self, request: pb.GetJobRequest) -> pb.Job:
        """Returns the job; if it is terminal, then with its result, which does not change any more."""
        view = await self._jobs.get(checked_id(request.job_id))
        job = job_message(view, await self._jobs.result(view.id) if view.state in TERMINAL else None)
        if not request.with_output:
            job.ClearField("output")
        if request.with_payload:
            job.payload = await self._jobs.payload(view.id)
        return job

    async def find(self, request: pb.FindJobsRequest) -> pb.FindJobsResponse:
        """Returns matching jobs; fewer than requested if their labels would not fit into one message."""
        query, size = query_of(request), checked_size(request.page_size)
        while True:
            found = await self._jobs.find(query, request.cursor, size)
            response = pb.FindJobsResponse(jobs=map(job_message, found.jobs), next_cursor=found.cursor)
            if size == 1 or response.ByteSize() <= limits.BATCH_BYTES_MAX:
                return response
            size = max(1, size // 4)

    async def wait(self, request: pb.AwaitJobRequest) -> pb.Job:
        """Waits until the job is terminal, and returns it with its output."""
        return job_message(*await self._jobs.settled(checked_id(request.job_id)))

    async def watch(self, request: pb.WatchJobRequest) -> AsyncIterator[pb.Job]:
        """Yields the job after each change; the last one is terminal, without its output."""
        async with closing(self._jobs.watch(checked_id(request.job_id))) as views:
            async for view in views:
                result = await self._jobs.result(view.id) if view.state in TERMINAL else None
                yield job_message(view, result and ResultView(result.state, b"", result.summary, result.runtime_ms))

    async def cancel(self, request: public_pb.CancelJobRequest) -> public_pb.CancelJobResponse:
        """Cancels a queued job; requests a running one to stop."""
        reply = await self._jobs.cancel(checked_id(request.job_id), request.reason)
        return public_pb.CancelJobResponse(
            job_id=request.job_id,
            accepted=True,
            current_status=job_status(reply.state),
            already_terminal=reply.was_terminal,
        )

    async def retry(self, request: pb.RetryJobRequest) -> pb.RetryJobResponse:
        """Submits a finished job again as a new job."""
        return pb.RetryJobResponse(job_id=await self._jobs.retry(checked_id(request.job_id), request.request_id))

    async def history(self, request: pb.GetHistoryRequest) -> pb.GetHistoryResponse:
        """Returns all events of one job."""
        entries = await self._backend.history.history(checked_id(request.job_id))
        return pb.GetHistoryResponse(entries=map(entry_message, entries))

    async def feed(self, request: pb.FeedRequest) -> AsyncIterator[pb.FeedResponse]:
        """Yields all events after a position, or from now on."""
        feed = self._backend.capability(self._backend.feed, Capability.FEED)
        async with closing(feed.feed(None if request.from_now else request.after)) as parts:
            async for part in parts:
                for message in feed_messages(part):
                    yield message


def closing(iterator: AsyncIterator[T]) -> AbstractAsyncContextManager[AsyncIterator[T]]:
    """Closes the iterator with the block; a port's generator would otherwise stay open until garbage collection."""
    return aclosing(cast("AsyncGenerator[T, None]", iterator))


def feed_messages(part: FeedPart) -> Iterator[pb.FeedResponse]:
    """Splits the part into messages of limited size; each has the position up to which the feed is complete."""
    entries = part.entries
    while len(entries) > _ENTRIES_MAX:
        told, entries = entries[:_ENTRIES_MAX], entries[_ENTRIES_MAX:]
        yield _feed_message(told, entries[0].position - 1)
    yield _feed_message(entries, part.position)


def _feed_message(entries: list[Entry], position: int) -> pb.FeedResponse:
    return pb.FeedResponse(entries=map(entry_message, entries), position=position)
