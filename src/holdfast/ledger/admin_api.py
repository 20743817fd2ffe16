"""`AdminApi` over a coordinator in this process."""

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import TypeVar, cast

from holdfast import limits
from holdfast.core import commands
from holdfast.core.condition import Conditions, no_conditions
from holdfast.core.ledger import Ledger
from holdfast.core.lifecycle import QUEUED, State
from holdfast.core.listing import Place
from holdfast.core.model import JobRecord, Now, QueueMode
from holdfast.core.overview import QueueCounts
from holdfast.core.owner import Ownership
from holdfast.core.validation import check_queue, check_reason
from holdfast.core.workers import WorkerInfo
from holdfast.errors import NotFoundError
from holdfast.ledger.coordinator import CommandLane, Coordinator
from holdfast.ledger.coordinator_calls import CoordinatorCaller
from holdfast.ledger.sessions import SessionDispatcher
from holdfast.ports import QueueView, Stats, WorkerView

#: The number of views that are built before the event loop runs other tasks.
_SLICE = 500

T = TypeVar("T")


class LedgerAdmin:
    """Operations for administrators, on the ledger and the registry of workers."""

    def __init__(
        self,
        coordinator: Coordinator,
        dispatcher: SessionDispatcher,
        *,
        epoch: int,
        cluster_id: str,
        conditions: Conditions = no_conditions,
    ) -> None:
        self._caller = CoordinatorCaller(coordinator)
        self._dispatcher = dispatcher
        self._epoch = epoch
        self._cluster_id = cluster_id
        self._conditions = conditions
        #: The path of the Unix socket on which this ledger is served; empty if there is none.
        self.socket = ""
        #: The node that this ledger is; None if it is not one of several nodes.
        self.ownership: Ownership | None = None

    async def stats(self) -> Stats:
        """Returns the numbers at one instant, when that state is durable."""
        return cast("Stats", await self._caller.read(CommandLane.LIST, self._stats))

    def _stats(self, ledger: Ledger, now: Now) -> Stats:
        ledger_state = ledger.state
        workers = self._dispatcher.registry.all()
        return Stats(
            ledger.position,
            now.log_ms,
            {state.name: ledger_state.listing.count([state]) for state in State},
            ledger_state.bytes_held,
            self._epoch,
            self._cluster_id,
            len(workers),
            sum(worker.slots for worker in workers),
            len(ledger_state.leases),
            self.socket,
            *((self.ownership.nodes, self.ownership.index) if self.ownership is not None else (0, 0)),
            ledger.config.memory_bytes,
            tuple(map(str, self._conditions())),
        )

    async def queues(self) -> list[QueueView]:
        """Returns the queues at one instant, when that state is durable."""
        found = await self._caller.read(CommandLane.LIST, lambda ledger, now: QueueCounts(ledger, now.log_ms))
        return await _in_slices(cast("QueueCounts", found).views())

    async def set_queue_mode(self, queue: str, mode: QueueMode, reason: str) -> None:
        """Sets the mode of a queue: one event, or none if the mode is unchanged."""
        await self._caller.call(CommandLane.SUBMIT, commands.SetQueueMode(queue, mode, reason))

    async def purge(self, queue: str, reason: str) -> int:
        """Cancels waiting jobs in slices of one event each; jobs that are submitted meanwhile are not affected."""
        if refusal := check_queue(queue) or check_reason(reason):
            raise refusal.error()
        end = cast("int", await self._caller.read(CommandLane.SUBMIT, lambda ledger, _: ledger.state.next_number))
        place, canceled, is_over = None, 0, False
        while not is_over:
            ids, place = await self._waiting(queue, end, place)
            is_over = place is None
            if ids:
                gone = await self._caller.call(CommandLane.SUBMIT, commands.CancelQueued(ids, reason))
                canceled += len(cast("list[str]", gone))
        return canceled

    async def _waiting(self, queue: str, end: int, after: Place | None) -> tuple[list[str], Place | None]:
        """Returns ids of waiting jobs of a queue with a number below `end`, and the place to continue from."""

        def wants(job: JobRecord) -> bool:
            return job.template.queue == queue and job.number < end

        def read(ledger: Ledger, _: Now) -> object:
            jobs, place = ledger.scan([QUEUED], after, limits.BATCH_JOBS_MAX, newest_first=False, wants=wants)
            return [job.id for job in jobs], place

        return cast("tuple[list[str], Place | None]", await self._caller.read(CommandLane.LIST, read))

    async def workers(self) -> list[WorkerView]:
        """Returns workers that are connected or poll, and absent workers that still hold leases."""
        held, known, served_ms = cast("_Workers", await self._caller.read(CommandLane.LIST, self._all_workers))
        return await _in_slices(_worker_views(held, known, served_ms))

    def _all_workers(self, ledger: Ledger, now: Now) -> "_Workers":
        held = {worker: len(tokens) for worker, tokens in ledger.state.tokens_of.items()}
        return held, self._dispatcher.registry.all(), now.served_ms

    async def drain_worker(self, worker_id: str) -> None:
        """Requests a worker to drain and exit, over its session."""
        if not self._dispatcher.ask_drain(worker_id):
            message = f"no worker {worker_id[:80]!r} is connected; see `holdfast worker list`"
            raise NotFoundError(message, reason="WORKER_NOT_FOUND")


#: The number of leases of each worker, the registered workers, and the served time of both.
_Workers = tuple[dict[str, int], list[WorkerInfo], int]


def _worker_views(held: dict[str, int], known: list[WorkerInfo], served_ms: int) -> Iterator[WorkerView]:
    """Yields the views by name. They may include changes that workers make while the views are built."""
    infos = {info.worker_id: info for info in known}
    for name in sorted(infos.keys() | held):
        info = infos.get(name)
        if info is None:  # it has not connected since this coordinator started
            yield WorkerView(name, [], [], 0, held[name], is_draining=False, is_streaming=False, heard_ms_ago=served_ms)
            continue
        yield WorkerView(
            name,
            sorted(info.routes),
            sorted(info.queues),
            info.slots,
            held.get(name, 0),
            info.is_draining,
            info.is_streaming,
            max(0, served_ms - info.heard_ms),
        )


async def _in_slices(items: Iterator[T]) -> list[T]:
    """Collects all items in slices, so that the event loop can serve its sockets in between."""
    found: list[T] = []
    while part := list(islice(items, _SLICE)):
        found += part
        if len(part) == _SLICE:
            await asyncio.sleep(0)
    return found
