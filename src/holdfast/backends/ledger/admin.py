"""`AdminApi` over a coordinator in this process."""

from typing import cast

from holdfast.backends.ledger.calling import Caller
from holdfast.backends.ports import QueueView, Stats, WorkerView
from holdfast.coordinator.loop import Coordinator, Lane
from holdfast.coordinator.sessions import Dispatcher
from holdfast.core import commands
from holdfast.core.ledger import Ledger
from holdfast.core.lifecycle import State
from holdfast.core.model import Now, QueueMode
from holdfast.errors import NotFoundError


class LedgerAdmin:
    """What operators ask for, answered by the ledger and by what workers have said of themselves."""

    def __init__(self, coordinator: Coordinator, dispatcher: Dispatcher, *, epoch: int, cluster_id: str) -> None:
        self._caller = Caller(coordinator)
        self._dispatcher = dispatcher
        self._epoch = epoch
        self._cluster_id = cluster_id

    async def stats(self) -> Stats:
        """At one instant; told once all of it is durable."""
        return cast("Stats", await self._caller.read(Lane.LIST, self._stats))

    def _stats(self, ledger: Ledger, now: Now) -> Stats:
        book = ledger.book
        workers = self._dispatcher.registry.all()
        return Stats(
            ledger.position,
            now.log_ms,
            {state.name: book.listing.count([state]) for state in State},
            book.bytes_held,
            self._epoch,
            self._cluster_id,
            len(workers),
            sum(worker.slots for worker in workers),
            len(book.leases),
        )

    async def queues(self) -> list[QueueView]:
        """At one instant; told once all of it is durable."""
        raise NotImplementedError

    async def set_queue_mode(self, queue: str, mode: QueueMode, reason: str) -> None:
        """One event, or none if it is so already."""
        await self._caller.call(Lane.SUBMIT, commands.SetQueueMode(queue, mode, reason))

    async def purge(self, queue: str, reason: str) -> int:
        """In slices, each of them one event; what is submitted meanwhile is left alone."""
        raise NotImplementedError

    async def workers(self) -> list[WorkerView]:
        """Those who are connected or poll, and those who have not come back yet and still hold leases."""
        return cast("list[WorkerView]", await self._caller.read(Lane.LIST, self._all_workers))

    def _all_workers(self, ledger: Ledger, now: Now) -> list[WorkerView]:
        held = {worker: len(tokens) for worker, tokens in ledger.book.tokens_of.items()}
        views = [
            WorkerView(
                info.worker_id,
                sorted(info.routes),
                sorted(info.queues),
                info.slots,
                held.pop(info.worker_id, 0),
                info.is_draining,
                info.is_streaming,
                now.served_ms - info.heard_ms,
            )
            for info in self._dispatcher.registry.all()
        ]
        # Since this coordinator serves, nothing was heard of these.
        views += [
            WorkerView(name, [], [], 0, count, is_draining=False, is_streaming=False, heard_ms_ago=now.served_ms)
            for name, count in held.items()
        ]
        return sorted(views, key=lambda view: view.worker_id)

    async def drain_worker(self, worker_id: str) -> None:
        """Asked at once, over its session."""
        if not self._dispatcher.ask_drain(worker_id):
            message = f"no worker {worker_id[:80]!r} is connected; see `holdfast worker list`"
            raise NotFoundError(message, reason="WORKER_NOT_FOUND")
