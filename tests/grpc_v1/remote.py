"""`JobApi`, `AdminApi` and `FeedApi` of a remote server, over any carrier.

Calls have the deadlines of the contract. They are retried by its retry policy where a repetition is safe.
"""

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from typing import Self

from google.protobuf.message import Message

from holdfast import limits
from holdfast.client.retry_policy import RetryPolicy
from holdfast.client.submit_batcher import SubmitBatcher
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
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public_pb
from tests.grpc_v1 import views
from tests.grpc_v1.schedules import RemoteSchedules
from tests.grpc_v1.transport import Carrier, Response
from tests.grpc_v1.views import made

_SUBMIT_S = limits.DEADLINE_MS_SUBMIT / 1_000
_CANCEL_S = limits.DEADLINE_MS_CANCEL / 1_000
_STATUS_S = limits.DEADLINE_MS_STATUS / 1_000
_RESULT_S = limits.DEADLINE_MS_RESULT / 1_000
_LIST_S = limits.DEADLINE_MS_LIST / 1_000
#: The deadline of calls that read a whole journal or all jobs of a queue.
_WALK_S = 60.0


class RemoteJobs:
    """All operations of one server. Use it as a context manager, or close it."""

    def __init__(self, carrier: Carrier, retry_policy: RetryPolicy | None = None, *, joins: bool = False) -> None:
        """`joins`: batch single jobs that have ids and are submitted while other submits are in flight."""
        self._carrier = carrier
        self._retrying = retry_policy or RetryPolicy()
        self._joiner = SubmitBatcher(self._submit) if joins else None
        self.schedules = RemoteSchedules(carrier, self._retrying)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection."""
        if self._joiner is not None:
            await self._joiner.close()
        await self._carrier.close()

    # -- jobs

    async def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Submits jobs. Retried only if every draft has an id or a request id, so that no job is created twice."""
        if self._joiner is not None and len(drafts) == 1 and drafts[0].id:
            return await self._joiner.submit(templates, drafts)
        return await self._submit(templates, drafts)

    async def _submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        if any(template.simulated for template in templates):
            raise InvalidArgumentError("simulated work is submitted over taskqueue.v1", reason="TEMPLATE_SIMULATED")
        with views.sendable():
            request = pb.SubmitJobsRequest(templates=map(views.template_message, templates))
            for draft in drafts:
                views.add_draft(request, draft)
        is_repeatable = all(draft.id or (draft.extra and draft.extra.request_id) for draft in drafts)
        method = "JobService/SubmitJobs"
        reply = await self._call(method, request, pb.SubmitJobsResponse, _SUBMIT_S, is_repeatable=is_repeatable)
        return views.submitted_of(reply)

    async def get(self, job_id: str) -> JobView:
        """Returns the job at one instant."""
        return views.job_view(
            await self._call("JobService/GetJob", made(pb.GetJobRequest, job_id=job_id), pb.Job, _STATUS_S)
        )

    async def result(self, job_id: str) -> ResultView:
        """Returns the result of the job, if there is one yet."""
        request = made(pb.GetJobRequest, job_id=job_id, with_output=True)
        return views.result_view(await self._call("JobService/GetJob", request, pb.Job, _RESULT_S))

    async def payload(self, job_id: str) -> bytes:
        """Returns the payload of the job."""
        request = made(pb.GetJobRequest, job_id=job_id, with_payload=True)
        return (await self._call("JobService/GetJob", request, pb.Job, _RESULT_S)).payload

    async def cancel(self, job_id: str, reason: str) -> CancelReply:
        """Cancels a queued job, or requests a running one to stop."""
        request = made(public_pb.CancelJobRequest, job_id=job_id, reason=reason)
        reply = await self._call("JobService/CancelJob", request, public_pb.CancelJobResponse, _CANCEL_S)
        return CancelReply(State(reply.current_status), reply.already_terminal)

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
        request = made(pb.ExplainJobRequest, job_id=job_id)
        reply = await self._call("JobService/ExplainJob", request, pb.ExplainJobResponse, _STATUS_S)
        return Explanation(State(reply.status), reply.reason, reply.explanation)

    async def watch(self, job_id: str) -> AsyncGenerator[JobView, None]:
        """Yields the job now and after each change; start again after an `UnavailableError`."""
        request = made(pb.WatchJobRequest, job_id=job_id)
        async with aclosing(self._carrier.stream("JobService/WatchJob", request, pb.Job)) as jobs:
            async for job in jobs:
                yield views.job_view(job)

    async def settled(self, job_id: str) -> tuple[JobView, ResultView]:
        """Waits, without a deadline, until the job has ended; returns it with its result."""
        job = await self._call("JobService/AwaitJob", made(pb.AwaitJobRequest, job_id=job_id), pb.Job, None)
        return views.job_view(job), views.result_view(job)

    async def find(self, query: JobQuery, cursor: str, size: int) -> SearchPage:
        """Returns matching jobs, and the cursor of the next page."""
        if size < 1:
            message = f"the page size must be at least 1, got {size}"
            raise InvalidArgumentError(message, reason="PAGE_SIZE_INVALID")
        request = views.query_message(query, cursor, size)
        reply = await self._call("JobService/FindJobs", request, pb.FindJobsResponse, _LIST_S)
        return SearchPage([views.job_view(job) for job in reply.jobs], reply.next_cursor)

    async def retry(self, job_id: str, request_id: str = "") -> str:
        """Submits a finished job again and returns the new id; the call is retried only with a request id."""
        request = made(pb.RetryJobRequest, job_id=job_id, request_id=request_id)
        method, is_repeatable = "JobService/RetryJob", bool(request_id)
        return (await self._call(method, request, pb.RetryJobResponse, _SUBMIT_S, is_repeatable=is_repeatable)).job_id

    # -- history and feed

    async def history(self, job_id: str) -> list[Entry]:
        """Returns everything that happened to a job."""
        request = made(pb.GetHistoryRequest, job_id=job_id)
        reply = await self._call("JobService/GetHistory", request, pb.GetHistoryResponse, _WALK_S)
        return [views.entry_of(entry) for entry in reply.entries]

    async def feed(self, after: int | None) -> AsyncGenerator[FeedPart, None]:
        """Yields all events; after an `UnavailableError`, continue from the last position."""
        request = made(pb.FeedRequest, after=after or 0, from_now=after is None)
        async with aclosing(self._carrier.stream("JobService/Feed", request, pb.FeedResponse)) as parts:
            async for part in parts:
                yield FeedPart([views.entry_of(entry) for entry in part.entries], part.position)

    # -- the backend

    async def capabilities(self) -> Capabilities:
        """Returns the capabilities of the server's backend."""
        request, method = pb.GetCapabilitiesRequest(), "AdminService/GetCapabilities"
        return views.capabilities_of(await self._call(method, request, pb.Capabilities, _STATUS_S))

    # -- administration

    async def stats(self) -> Stats:
        """Returns the numbers about the whole system."""
        return views.stats_of(await self._call("AdminService/GetStats", pb.GetStatsRequest(), pb.Stats, _STATUS_S))

    async def queues(self) -> list[QueueView]:
        """Returns every queue, by name."""
        request, method = pb.ListQueuesRequest(), "AdminService/ListQueues"
        return [views.queue_view(q) for q in (await self._call(method, request, pb.ListQueuesResponse, _LIST_S)).queues]

    async def set_queue_mode(self, queue: str, mode: QueueMode, reason: str) -> None:
        """Opens, pauses or drains a queue."""
        request = made(pb.SetQueueModeRequest, queue=queue, mode=views.mode_message(mode), reason=reason)
        await self._call("AdminService/SetQueueMode", request, pb.SetQueueModeResponse, _CANCEL_S)

    async def purge(self, queue: str, reason: str) -> int:
        """Cancels all waiting jobs. Not retried, because the number returned would be that of the last try only."""
        request, method = made(pb.PurgeQueueRequest, queue=queue, reason=reason), "AdminService/PurgeQueue"
        return (await self._call(method, request, pb.PurgeQueueResponse, _WALK_S, is_repeatable=False)).canceled

    async def workers(self) -> list[WorkerView]:
        """Returns every worker that is connected or was so recently."""
        request, method = pb.ListWorkersRequest(), "AdminService/ListWorkers"
        reply = await self._call(method, request, pb.ListWorkersResponse, _LIST_S)
        return [views.worker_view(worker) for worker in reply.workers]

    async def drain_worker(self, worker_id: str) -> None:
        """Requests a worker to finish its jobs and exit."""
        request = made(pb.DrainWorkerRequest, worker_id=worker_id)
        await self._call("AdminService/DrainWorker", request, pb.DrainWorkerResponse, _CANCEL_S)

    async def _call(
        self,
        method: str,
        request: Message,
        response: type[Response],
        deadline_s: float | None,
        *,
        is_repeatable: bool = True,
    ) -> Response:
        async def once() -> Response:
            return await self._carrier.call(method, request, response, deadline_s)

        return await self._retrying.call(once, is_repeatable=is_repeatable)
