"""Metrics of a gateway whose jobs are stored elsewhere: its calls, their outcomes, and the queues.

Every process counts its own calls, so clients' calls are the sum over all processes. The queues are those of the
backend, the same in every process. A gateway does not know how many jobs have ended.
"""

import asyncio
import platform
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Collection, Iterator, Sequence
from contextlib import aclosing
from typing import TypeVar, cast

import msgspec
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, InfoMetricFamily, Metric

from holdfast import __version__
from holdfast.core.commands import CancelReply, Submitted
from holdfast.core.lifecycle import State
from holdfast.core.model import Template
from holdfast.errors import HoldfastError
from holdfast.observe.exposition import buckets, of_queues, render
from holdfast.observe.metrics import OTHER, SERIES_MAX, Distribution
from holdfast.ports import (
    Explanation,
    JobApi,
    JobDraft,
    JobQuery,
    JobView,
    Page,
    ResultView,
    SearchPage,
)
from holdfast.server.backend import Backend

T = TypeVar("T")

#: Upper bounds in microseconds, from a reply out of memory to one that a client no longer waits for.
_CALL_BOUNDS_US = (500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000)
_SECOND_US = 1_000_000


class GatewayMetrics:
    """Counts the calls to a backend; serve its attribute `backend` in place of that backend."""

    #: Unknown to a gateway.
    totals = None

    def __init__(self, backend: Backend) -> None:
        self._jobs = CountedJobs(backend.jobs)
        self._admin = backend.admin
        self._build = {"version": __version__, "python": platform.python_version(), "backend": backend.name}
        self.backend = msgspec.structs.replace(backend, jobs=self._jobs)

    async def page(self) -> bytes:
        """Returns the metrics in Prometheus format."""
        families = [*self._families(), *await self._queues()]
        return await asyncio.to_thread(render, families)

    async def _queues(self) -> list[Metric]:
        """Returns the queues of a backend with administration; none while it does not answer."""
        if self._admin is None:
            return []
        try:
            return list(of_queues(await self._admin.queues()))
        except HoldfastError:
            return []

    def _families(self) -> Iterator[Metric]:
        jobs = self._jobs
        submitted = CounterMetricFamily("holdfast_jobs_submitted", "Jobs that were accepted.", labels=("queue", "type"))
        for pair, count in jobs.submitted.items():
            submitted.add_metric(pair, count)
        calls = CounterMetricFamily(
            "holdfast_gateway_calls", "Calls of clients, by call and status code.", labels=("call", "code")
        )
        for ended, count in jobs.calls.items():
            calls.add_metric(ended, count)
        times = HistogramMetricFamily(
            "holdfast_gateway_call_seconds",
            "Duration of calls, except those that wait for a job.",
            labels=("call",),
        )
        for call, distribution in jobs.times_us.items():
            times.add_metric((call,), *buckets(distribution, _SECOND_US))
        yield from (submitted, calls, times)
        yield InfoMetricFamily("holdfast_build", "Version and build of this process.", value=self._build)


class CountedJobs:
    """A `JobApi` that passes calls on, and counts and times them."""

    def __init__(self, jobs: JobApi) -> None:
        self._jobs = jobs
        #: By queue and type; the number of pairs is limited, because clients choose the names.
        self.submitted: dict[tuple[str, str], int] = {}
        #: By call and code.
        self.calls: dict[tuple[str, str], int] = {}
        self.times_us: dict[str, Distribution] = {}

    async def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Submits jobs; counts only new ones."""
        submitted = await self._timed("submit", self._jobs.submit(templates, drafts))
        if len(templates) == 1 and not submitted.existing and not submitted.refusals:
            self._add(templates[0], len(drafts))
            return submitted
        for place, (job_id, draft) in enumerate(zip(submitted.job_ids, drafts, strict=True)):
            if job_id and place not in submitted.existing:
                self._add(templates[draft.template])
        return submitted

    def _add(self, template: Template, count: int = 1) -> None:
        pair = (template.queue, template.type)
        if pair not in self.submitted and len(self.submitted) >= SERIES_MAX:
            pair = (OTHER, OTHER)
        self.submitted[pair] = self.submitted.get(pair, 0) + count

    async def get(self, job_id: str) -> JobView:
        """Returns the job."""
        return await self._timed("get", self._jobs.get(job_id))

    async def result(self, job_id: str) -> ResultView:
        """Returns its result."""
        return await self._timed("result", self._jobs.result(job_id))

    async def cancel(self, job_id: str, reason: str) -> CancelReply:
        """Cancels the job, or requests it to stop."""
        return await self._timed("cancel", self._jobs.cancel(job_id, reason))

    async def page(self, states: Collection[State], offset: int, size: int, *, newest_first: bool) -> Page:
        """Returns one page of a listing."""
        return await self._timed("page", self._jobs.page(states, offset, size, newest_first=newest_first))

    async def explain(self, job_id: str) -> Explanation:
        """Explains the current state of the job."""
        return await self._timed("explain", self._jobs.explain(job_id))

    async def payload(self, job_id: str) -> bytes:
        """Returns the payload of the job."""
        return await self._timed("payload", self._jobs.payload(job_id))

    async def find(self, query: JobQuery, cursor: str, size: int) -> SearchPage:
        """Returns matching jobs."""
        return await self._timed("find", self._jobs.find(query, cursor, size))

    async def retry(self, job_id: str, request_id: str = "") -> str:
        """Submits a finished job again as a new job."""
        return await self._timed("retry", self._jobs.retry(job_id, request_id))

    async def settled(self, job_id: str) -> tuple[JobView, ResultView]:
        """Waits until the job is terminal; a canceled wait is not counted."""
        return await self._counted("settled", self._jobs.settled(job_id))

    async def watch(self, job_id: str) -> AsyncIterator[JobView]:
        """Yields the job after each change; counted at the beginning."""
        async with aclosing(cast("AsyncGenerator[JobView, None]", self._jobs.watch(job_id))) as views:
            self._end("watch", "OK")
            async for view in views:
                yield view

    async def _timed(self, call: str, answer: Awaitable[T]) -> T:
        began_ns = time.perf_counter_ns()
        try:
            return await self._counted(call, answer)
        finally:
            if call not in self.times_us:
                self.times_us[call] = Distribution(_CALL_BOUNDS_US)
            self.times_us[call].add((time.perf_counter_ns() - began_ns) // 1_000)

    async def _counted(self, call: str, answer: Awaitable[T]) -> T:
        try:
            value = await answer
        except HoldfastError as error:
            self._end(call, error.code.value)
            raise
        self._end(call, "OK")
        return value

    def _end(self, call: str, code: str) -> None:
        self.calls[call, code] = self.calls.get((call, code), 0) + 1
