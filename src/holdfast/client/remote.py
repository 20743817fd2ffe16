"""`JobApi`, `AdminApi` and `FeedApi` of a remote server, over the wire.

Calls have the deadlines of the contract. They are retried by its retry policy where a repetition is safe.
"""

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from typing import Self, TypeVar

from holdfast import limits
from holdfast.client.retry_policy import RetryPolicy
from holdfast.client.schedules import RemoteSchedules
from holdfast.client.submit_batcher import SubmitBatcher
from holdfast.client.transport import Transport
from holdfast.core.capabilities import Capabilities
from holdfast.core.commands import CancelReply, Submitted
from holdfast.core.history import Entry
from holdfast.core.lifecycle import State
from holdfast.core.model import QueueMode, Template
from holdfast.errors import InvalidArgumentError
from holdfast.ports import (
    Explanation,
    FeedPart,
    JobDraft,
    JobQuery,
    JobView,
    Page,
    QueueView,
    ResultView,
    SearchPage,
    Stats,
    WorkerView,
)
from holdfast.wire import methods
from holdfast.wire.methods import NOTHING, OneJob, WireMethod

Q = TypeVar("Q")
R = TypeVar("R")

SUBMIT_S = limits.DEADLINE_MS_SUBMIT / 1_000
_CANCEL_S = limits.DEADLINE_MS_CANCEL / 1_000
_STATUS_S = limits.DEADLINE_MS_STATUS / 1_000
_RESULT_S = limits.DEADLINE_MS_RESULT / 1_000
_LIST_S = limits.DEADLINE_MS_LIST / 1_000
#: The deadline of calls that read a whole journal or all jobs of a queue.
_WALK_S = 60.0


class RemoteJobs:
    """All operations of one server. Use it as a context manager, or close it."""

    def __init__(self, transport: Transport, retry_policy: RetryPolicy | None = None, *, joins: bool = False) -> None:
        """`joins`: batch single jobs that have ids and are submitted while other submits are in flight."""
        self._transport = transport
        self._retry_policy = retry_policy or RetryPolicy()
        self._batcher = SubmitBatcher(self._submit) if joins else None
        self.schedules = RemoteSchedules(transport, self._retry_policy)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection."""
        if self._batcher is not None:
            await self._batcher.close()
        await self._transport.close()

    # -- jobs

    async def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Submits jobs. Retried only if every draft has an id or a request id, so that no job is created twice."""
        if self._batcher is not None and len(drafts) == 1 and drafts[0].id:
            return await self._batcher.submit(templates, drafts)
        return await self._submit(templates, drafts)

    async def _submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        is_repeatable = all(draft.id or (draft.extra and draft.extra.request_id) for draft in drafts)
        request = methods.Submission(list(templates), list(drafts))
        return await self._call(methods.SUBMIT, request, SUBMIT_S, is_repeatable=is_repeatable)

    async def get(self, job_id: str) -> JobView:
        """Returns the job at one instant."""
        return await self._call(methods.GET, OneJob(job_id), _STATUS_S)

    async def result(self, job_id: str) -> ResultView:
        """Returns the result of the job, if there is one yet."""
        return await self._call(methods.RESULT, OneJob(job_id), _RESULT_S)

    async def payload(self, job_id: str) -> bytes:
        """Returns the payload of the job."""
        return await self._call(methods.PAYLOAD, OneJob(job_id), _RESULT_S)

    async def cancel(self, job_id: str, reason: str) -> CancelReply:
        """Cancels a queued job, or requests a running one to stop."""
        return await self._call(methods.CANCEL, methods.JobCancel(job_id, reason), _CANCEL_S)

    async def page(self, states: Collection[State], offset: int, size: int, *, newest_first: bool) -> Page:
        """Returns a numbered page, by a search from the start up to its end; `find` continues from a cursor instead."""
        query, cursor = JobQuery(states=frozenset(states), oldest_first=not newest_first), ""
        jobs: list[JobView] = []
        while len(jobs) <= offset + size:
            found = await self.find(query, cursor, limits.PAGE_SIZE_MAX)
            jobs += found.jobs
            cursor = found.cursor
            if not cursor:
                break
        return Page(jobs[offset : offset + size], len(jobs) > offset + size)

    async def explain(self, job_id: str) -> Explanation:
        """Explains the current state of the job."""
        return await self._call(methods.EXPLAIN, OneJob(job_id), _STATUS_S)

    async def watch(self, job_id: str) -> AsyncGenerator[JobView, None]:
        """Yields the job now and after each change; start again after an `UnavailableError`."""
        async with aclosing(self._transport.stream(methods.WATCH, OneJob(job_id))) as jobs:
            async for job in jobs:
                yield job

    async def settled(self, job_id: str) -> tuple[JobView, ResultView]:
        """Waits, without a deadline, until the job has ended; returns it with its result."""
        return await self._call(methods.SETTLED, OneJob(job_id), None)

    async def find(self, query: JobQuery, cursor: str, size: int) -> SearchPage:
        """Returns matching jobs, and the cursor of the next page."""
        if size < 1:
            message = f"the page size must be at least 1, got {size}"
            raise InvalidArgumentError(message, reason="PAGE_SIZE_INVALID")
        return await self._call(methods.FIND, methods.JobSearch(query, cursor, size), _LIST_S)

    async def retry(self, job_id: str, request_id: str = "") -> str:
        """Submits a finished job again and returns the new id; the call is retried only with a request id."""
        request = methods.JobRetry(job_id, request_id)
        return await self._call(methods.RETRY, request, SUBMIT_S, is_repeatable=bool(request_id))

    # -- history and feed

    async def history(self, job_id: str) -> list[Entry]:
        """Returns everything that happened to a job."""
        return await self._call(methods.HISTORY, OneJob(job_id), _WALK_S)

    async def feed(self, after: int | None) -> AsyncGenerator[FeedPart, None]:
        """Yields all events; after an `UnavailableError`, continue from the last position."""
        async with aclosing(self._transport.stream(methods.FEED, methods.FeedStart(after))) as parts:
            async for part in parts:
                yield part

    # -- the backend

    async def capabilities(self) -> Capabilities:
        """Returns the capabilities of the server's backend."""
        return await self._call(methods.CAPABILITIES, NOTHING, _STATUS_S)

    # -- administration

    async def stats(self) -> Stats:
        """Returns the numbers about the whole system."""
        return await self._call(methods.STATS, NOTHING, _STATUS_S)

    async def queues(self) -> list[QueueView]:
        """Returns every queue, by name."""
        return await self._call(methods.QUEUES, NOTHING, _LIST_S)

    async def set_queue_mode(self, queue: str, mode: QueueMode, reason: str) -> None:
        """Opens, pauses or drains a queue."""
        await self._call(methods.SET_QUEUE_MODE, methods.QueueChange(queue, mode, reason), _CANCEL_S)

    async def purge(self, queue: str, reason: str) -> int:
        """Cancels all waiting jobs. Not retried, because the number returned would be that of the last try only."""
        request = methods.QueuePurge(queue, reason)
        return await self._call(methods.PURGE, request, _WALK_S, is_repeatable=False)

    async def workers(self) -> list[WorkerView]:
        """Returns every worker that is connected or was so recently."""
        return await self._call(methods.WORKERS, NOTHING, _LIST_S)

    async def drain_worker(self, worker_id: str) -> None:
        """Requests a worker to finish its jobs and exit."""
        await self._call(methods.DRAIN_WORKER, methods.OneWorker(worker_id), _CANCEL_S)

    async def _call(
        self, method: WireMethod[Q, R], request: Q, deadline_s: float | None, *, is_repeatable: bool = True
    ) -> R:
        return await self._retry_policy.call(
            lambda: self._transport.call(method, request, deadline_s), is_repeatable=is_repeatable
        )
