"""The ports of the pipeline in a gateway: every call goes to one of the schedulers."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from typing import Any

from holdfast.client.submit_batcher import SubmitBatcher
from holdfast.core.commands import CancelReply, Submitted
from holdfast.core.history import Entry
from holdfast.core.lifecycle import TERMINAL, State
from holdfast.core.model import QueueMode, Template
from holdfast.ports import (
    Explanation,
    JobDraft,
    JobQuery,
    JobView,
    Page,
    QueueView,
    ResultView,
    ScheduleSpec,
    ScheduleView,
    SearchPage,
    Stats,
    WorkerView,
)
from holdfast.topologies.pipeline.backend.load_balancer import LoadBalancer
from holdfast.topologies.pipeline.backend.port_rpc import METHODS, WAIT_MS_MAX, EndedJob, JobChange, answer_of, question

#: The most concurrent polls per scheduler, because each needs a connection. If more calls wait, they take turns, and
#: each poll is shorter.
_POLLS_MAX = 300
_POLL_MS_MIN = 500


async def _call(
    balancer: LoadBalancer, name: str, *arguments: object, is_repeatable: bool | None = None, wait_ms: int = 0
) -> Any:  # noqa: ANN401 - of the method's type
    method = METHODS[name]
    body = await balancer.call(method, question(*arguments), is_repeatable=is_repeatable, wait_s=wait_ms / 1_000)
    return answer_of(method, body)


class BalancedJobs:
    """`JobApi` and `HistoryApi` over the schedulers."""

    def __init__(self, balancer: LoadBalancer) -> None:
        self._balancer = balancer
        self._batcher = SubmitBatcher(self._send)
        self._polling = _PollLimiter(_POLLS_MAX * max(1, len(balancer.schedulers)))

    async def close(self) -> None:
        """Ends the batching of submissions."""
        await self._batcher.close()

    async def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Batches the submissions that arrive while others are being sent."""
        return await self._batcher.submit(templates, drafts)

    async def _send(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        submitted: Submitted = await _call(self._balancer, "jobs.submit", templates, drafts)
        return submitted

    async def get(self, job_id: str) -> JobView:
        """Returns the job."""
        view: JobView = await _call(self._balancer, "jobs.get", job_id)
        return view

    async def result(self, job_id: str) -> ResultView:
        """Returns the job's state, and its result if it has ended."""
        view: ResultView = await _call(self._balancer, "jobs.result", job_id)
        return view

    async def history(self, job_id: str) -> list[Entry]:
        """Returns the job's history, oldest first."""
        entries: list[Entry] = await _call(self._balancer, "histories.history", job_id)
        return entries

    async def cancel(self, job_id: str, reason: str) -> CancelReply:
        """Ends a waiting job, or requests that a running one stops."""
        reply: CancelReply = await _call(self._balancer, "jobs.cancel", job_id, reason)
        return reply

    async def page(self, states: Collection[State], offset: int, size: int, *, newest_first: bool) -> Page:
        """Returns one page of a listing."""
        page: Page = await _call(self._balancer, "jobs.page", list(states), offset, size, newest_first)
        return page

    async def explain(self, job_id: str) -> Explanation:
        """Explains the state of the job."""
        explanation: Explanation = await _call(self._balancer, "jobs.explain", job_id)
        return explanation

    async def payload(self, job_id: str) -> bytes:
        """Returns the payload."""
        payload: bytes = await _call(self._balancer, "jobs.payload", job_id)
        return payload

    async def find(self, query: JobQuery, cursor: str, size: int) -> SearchPage:
        """Returns jobs that match."""
        found: SearchPage = await _call(self._balancer, "jobs.find", query, cursor, size)
        return found

    async def retry(self, job_id: str, request_id: str = "") -> str:
        """Submits a copy of a finished job; the call is repeated automatically only with a request id."""
        new_id: str = await _call(
            self._balancer, "jobs.retry", job_id, request_id, is_repeatable=True if request_id else None
        )
        return new_id

    async def watch(self, job_id: str) -> AsyncGenerator[JobView, None]:
        """Yields the job now and after each change, by consecutive polls."""
        seen = 0
        while True:
            changed: JobChange | None = await self._poll("jobs.changed", job_id, seen)
            if changed is not None:
                seen = changed.seen
                yield changed.job
                if changed.job.state in TERMINAL:
                    return

    async def settled(self, job_id: str) -> tuple[JobView, ResultView]:
        """Polls until the job has ended, and returns it with its result."""
        while True:
            ended: EndedJob | None = await self._poll("jobs.ended", job_id)
            if ended is not None:
                return ended.job, ended.result

    async def _poll(self, name: str, *arguments: object) -> Any:  # noqa: ANN401 - of the method's type
        async with self._polling as wait_ms:
            return await _call(self._balancer, name, *arguments, wait_ms, wait_ms=wait_ms)


class _PollLimiter:
    """Limits concurrent polls; each gets a length that depends on the number of waiting calls."""

    def __init__(self, polls_max: int) -> None:
        self._polls_max = polls_max
        self._turns = asyncio.Semaphore(polls_max)
        self._waiting = 0

    async def __aenter__(self) -> int:
        self._waiting += 1
        try:
            await self._turns.acquire()
        except BaseException:
            self._waiting -= 1
            raise
        return max(_POLL_MS_MIN, min(WAIT_MS_MAX, WAIT_MS_MAX * self._polls_max // self._waiting))

    async def __aexit__(self, *_: object) -> None:
        self._waiting -= 1
        self._turns.release()


class BalancedAdmin:
    """`AdminApi` over the schedulers."""

    def __init__(self, balancer: LoadBalancer) -> None:
        self._balancer = balancer

    async def stats(self) -> Stats:
        """Returns the statistics."""
        stats: Stats = await _call(self._balancer, "admin.stats")
        return stats

    async def queues(self) -> list[QueueView]:
        """Returns every queue, by name."""
        queues: list[QueueView] = await _call(self._balancer, "admin.queues")
        return queues

    async def set_queue_mode(self, queue: str, mode: QueueMode, reason: str) -> None:
        """Opens, pauses or drains a queue."""
        await _call(self._balancer, "admin.set_queue_mode", queue, mode, reason)

    async def purge(self, queue: str, reason: str) -> int:
        """Cancels the waiting jobs; not repeated automatically, because the number would be that of the last try."""
        canceled: int = await _call(self._balancer, "admin.purge", queue, reason)
        return canceled

    async def workers(self) -> list[WorkerView]:
        """Returns every connected worker."""
        workers: list[WorkerView] = await _call(self._balancer, "admin.workers")
        return workers

    async def drain_worker(self, worker_id: str) -> None:
        """Requests that a worker finishes its jobs and ends."""
        await _call(self._balancer, "admin.drain_worker", worker_id)


class BalancedSchedules:
    """`ScheduleApi` over the schedulers."""

    def __init__(self, balancer: LoadBalancer) -> None:
        self._balancer = balancer

    async def set(self, spec: ScheduleSpec) -> ScheduleView:
        """Creates or replaces a schedule."""
        view: ScheduleView = await _call(self._balancer, "schedules.set", spec)
        return view

    async def get(self, name: str) -> ScheduleView:
        """Returns a schedule."""
        view: ScheduleView = await _call(self._balancer, "schedules.get", name)
        return view

    async def all(self) -> list[ScheduleView]:
        """Returns all schedules, by name."""
        views: list[ScheduleView] = await _call(self._balancer, "schedules.all")
        return views

    async def delete(self, name: str) -> None:
        """Deletes a schedule; not repeated automatically, because the second try would not find it."""
        await _call(self._balancer, "schedules.delete", name)

    async def pause(self, name: str, *, is_paused: bool) -> ScheduleView:
        """Pauses or resumes a schedule."""
        view: ScheduleView = await _call(self._balancer, "schedules.pause", name, is_paused)
        return view

    async def trigger(self, name: str) -> str:
        """Creates a job now; not repeated automatically, because that could create two."""
        job_id: str = await _call(self._balancer, "schedules.trigger", name)
        return job_id

    async def preview(self, spec: ScheduleSpec, after_ms: int, count: int) -> list[int]:
        """Returns the next ticks."""
        ticks: list[int] = await _call(self._balancer, "schedules.preview", spec, after_ms, count)
        return ticks
