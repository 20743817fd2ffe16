"""`JobApi`, `AdminApi` and `FeedApi` over several nodes: the client finds the owner, and nodes forward nothing.

A request about one job goes to the node that owns the job's id. Lists, searches, queues, workers and statistics are
read from all nodes at once and merged. If a node does not answer, they fail with UNAVAILABLE and the node's address,
because an incomplete list would look complete. There is no feed over all nodes, because they have no common position.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import aclosing
from typing import Self

import msgspec

from holdfast import limits
from holdfast.client import routed_search, routed_submits, routed_views
from holdfast.client.access import NO_CREDENTIALS, Access
from holdfast.client.discovery import EndpointOf, missing
from holdfast.client.endpoints import TcpEndpoint
from holdfast.client.node_set import Node, NodeSet
from holdfast.client.node_tokens import NodeTokens
from holdfast.client.retry_policy import RetryPolicy
from holdfast.client.schedules import RemoteSchedules
from holdfast.core.capabilities import MONOLITH, Capabilities
from holdfast.core.commands import CancelReply, Submitted
from holdfast.core.history import Entry
from holdfast.core.lifecycle import State
from holdfast.core.model import QueueMode, Template
from holdfast.errors import HoldfastError, NotFoundError, UnavailableError, UnimplementedError
from holdfast.ports import (
    Explanation,
    FeedPart,
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


class RoutedJobs:
    """All operations on several nodes. Use it as a context manager, or close it."""

    def __init__(
        self,
        addresses: Sequence[str],
        access: Access = NO_CREDENTIALS,
        *,
        endpoint: EndpointOf = TcpEndpoint,
        retry_policy: RetryPolicy | None = None,
    ) -> None:
        """The addresses must be in their fixed order, which determines the owners."""
        self._nodes = NodeSet(addresses, access, endpoint=endpoint, retry_policy=retry_policy)
        self._tokens = NodeTokens(len(addresses))
        self.schedules = RoutedSchedules(self._nodes)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections."""
        await self._nodes.close()

    def _owner(self, job_id: str) -> Node:
        return self._nodes.owner(job_id)

    # -- jobs

    async def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Submits drafts to their owners; a draft whose node does not answer is refused with that node's error."""
        return await routed_submits.submit(self._nodes, templates, drafts)

    async def get(self, job_id: str) -> JobView:
        """Returns the job at one instant."""
        node = self._owner(job_id)
        return self._tokens.job(node.index, await node.jobs.get(job_id))

    async def result(self, job_id: str) -> ResultView:
        """Returns the result of the job, if there is one yet."""
        return await self._owner(job_id).jobs.result(job_id)

    async def payload(self, job_id: str) -> bytes:
        """Returns the payload of the job."""
        return await self._owner(job_id).jobs.payload(job_id)

    async def cancel(self, job_id: str, reason: str) -> CancelReply:
        """Cancels a queued job, or requests a running one to stop."""
        return await self._owner(job_id).jobs.cancel(job_id, reason)

    async def explain(self, job_id: str) -> Explanation:
        """Explains the current state of the job, as far as its node knows."""
        return await self._owner(job_id).jobs.explain(job_id)

    async def watch(self, job_id: str) -> AsyncGenerator[JobView, None]:
        """Yields the job now and after each change; start again after an `UnavailableError`."""
        node = self._owner(job_id)
        async with aclosing(node.jobs.watch(job_id)) as views:
            async for job in views:
                yield self._tokens.job(node.index, job)

    async def settled(self, job_id: str) -> tuple[JobView, ResultView]:
        """Waits, without a deadline, until the job has ended; returns it with its result."""
        node = self._owner(job_id)
        job, result = await node.jobs.settled(job_id)
        return self._tokens.job(node.index, job), result

    async def retry(self, job_id: str, request_id: str = "") -> str:
        """Submits a finished job again, at the same node, and returns the new id; the request id applies there too."""
        return await self._owner(job_id).jobs.retry(job_id, request_id)

    async def find(self, query: JobQuery, cursor: str, size: int) -> SearchPage:
        """Returns matching jobs of all nodes, and the cursor of the next page."""
        found = await routed_search.find(self._nodes, query, cursor, size)
        jobs = [self._tokens.job(self._owner(job.id).index, job) for job in found.jobs]
        return SearchPage(jobs, found.cursor)

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

    # -- history and feed

    async def history(self, job_id: str) -> list[Entry]:
        """Returns everything that happened to a job."""
        node = self._owner(job_id)
        return self._tokens.entries(node.index, await node.jobs.history(job_id))

    def feed(self, after: int | None) -> AsyncIterator[FeedPart]:
        """Raises `UnimplementedError`: several nodes have no common feed."""
        del after
        raise UnimplementedError(
            "several nodes have no common event stream, because each has positions of its own;"
            " connect to a single node for its events",
            reason="FEED_UNIMPLEMENTED",
        )

    # -- the backend

    @property
    def total(self) -> int:
        """The number of nodes."""
        return len(self._nodes)

    async def answering(self) -> int:
        """Returns the number of nodes that answer."""
        return sum(await asyncio.gather(*(node.is_there() for node in self._nodes)))

    async def capabilities(self) -> Capabilities:
        """Returns the capabilities that all nodes have, and their versions, separated by commas if they differ."""
        nodes = await self._nodes.all(lambda node: node.jobs.capabilities())
        present = MONOLITH.present.intersection(*(node.present for node in nodes))
        return Capabilities(MONOLITH.backend, present, ", ".join(sorted({node.version for node in nodes})))

    # -- administration

    async def stats(self) -> Stats:
        """Returns the numbers about all nodes together."""
        numbers = await self._nodes.all(lambda node: node.jobs.stats())
        return routed_views.stats(numbers, await self.workers())

    async def queues(self) -> list[QueueView]:
        """Returns every queue of any node, by name."""
        return routed_views.queues(await self._nodes.all(lambda node: node.jobs.queues()))

    async def set_queue_mode(self, queue: str, mode: QueueMode, reason: str) -> None:
        """Sets the mode at all nodes; if one does not answer, others may have it already: repeat the call."""
        await self._nodes.all(lambda node: node.jobs.set_queue_mode(queue, mode, reason))

    async def purge(self, queue: str, reason: str) -> int:
        """Cancels all waiting jobs at all nodes; if one does not answer, those at the others are still canceled."""
        return sum(await self._nodes.all(lambda node: node.jobs.purge(queue, reason)))

    async def workers(self) -> list[WorkerView]:
        """Returns every worker that is connected to any node or was so recently."""
        return routed_views.workers(await self._nodes.all(lambda node: node.jobs.workers()))

    async def drain_worker(self, worker_id: str) -> None:
        """Requests a worker, through every node that knows it, to finish and exit; it then drains at all nodes."""

        async def ask(node: Node) -> list[HoldfastError]:
            try:
                await node.jobs.drain_worker(worker_id)
            except (NotFoundError, UnavailableError) as error:
                return [error]
            return []

        answers = await self._nodes.all(ask)
        if [] in answers:
            return
        refusals = [refusal for answer in answers for refusal in answer]
        silent = [n.address for n, refusal in zip(self._nodes, refusals, strict=True) if _is_silence(refusal)]
        if silent:
            raise missing(silent)
        raise refusals[0]


class UnnamedJobs(RoutedJobs):
    """For callers that give every draft an id only to make it repeatable: here the router creates the ids."""

    async def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Routes drafts by their keys, or in turn; new ids belong to the chosen nodes."""
        return await super().submit(templates, [msgspec.structs.replace(draft, id="") for draft in drafts])


def _is_silence(answer: object) -> bool:
    return isinstance(answer, UnavailableError)


class RoutedSchedules:
    """`ScheduleApi` over several nodes: the node that owns a schedule's name keeps the schedule and its jobs."""

    def __init__(self, nodes: NodeSet) -> None:
        self._nodes = nodes

    def _owner(self, name: str) -> RemoteSchedules:
        return self._nodes.owner(name).jobs.schedules

    async def set(self, spec: ScheduleSpec) -> ScheduleView:
        """Creates or replaces a schedule."""
        return await self._owner(spec.name).set(spec)

    async def get(self, name: str) -> ScheduleView:
        """Returns one schedule; `NotFoundError` if it does not exist."""
        return await self._owner(name).get(name)

    async def all(self) -> list[ScheduleView]:
        """Returns the schedules of all nodes, by name."""
        answers = await self._nodes.all(lambda node: node.jobs.schedules.all())
        return sorted((view for answer in answers for view in answer), key=lambda view: view.spec.name)

    async def delete(self, name: str) -> None:
        """Deletes a schedule; its jobs stay."""
        await self._owner(name).delete(name)

    async def pause(self, name: str, *, is_paused: bool) -> ScheduleView:
        """Pauses or resumes a schedule."""
        return await self._owner(name).pause(name, is_paused=is_paused)

    async def trigger(self, name: str) -> str:
        """Creates a job now and returns its id."""
        return await self._owner(name).trigger(name)

    async def preview(self, spec: ScheduleSpec, after_ms: int, count: int) -> list[int]:
        """Returns the next ticks."""
        return await self._owner(spec.name).preview(spec, after_ms, count)
