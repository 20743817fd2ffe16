"""`AdminApi` over a store: the operators' requests to a scheduler."""

import asyncio
from contextlib import suppress

from holdfast.core.lifecycle import RUNNING
from holdfast.core.model import QueueMode
from holdfast.errors import NotFoundError
from holdfast.ports import QueueView, Stats, WorkerView
from holdfast.topologies.pipeline.backend.store import Store

#: How often, and at what interval, an unknown worker is looked up.
_LOOKS, _LOOK_S = 10, 0.1


class PipelineAdmin:
    """Statistics and controls, all of them in the database."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def stats(self) -> Stats:
        """Returns the statistics; `position` is 0, because the pipeline has no journal."""
        states = await self._store.queues.states()
        places = await self._store.workers.all()
        return Stats(
            position=0,
            now_ms=await self._store.queues.now_ms(),
            states={state.name: count for state, count in states.items()},
            bytes_held=0,
            epoch=0,
            cluster_id=await self._store.cluster_id(),
            workers=len(places),
            slots=sum(place.slots for place in places),
            leases=states[RUNNING],
        )

    async def queues(self) -> list[QueueView]:
        """Returns the queues by name."""
        return await self._store.queues.queues()

    async def set_queue_mode(self, queue: str, mode: QueueMode, reason: str) -> None:
        """Sets the mode; running jobs continue."""
        await self._store.queues.set_mode(queue, mode, reason)

    async def purge(self, queue: str, reason: str) -> int:
        """Cancels the waiting jobs in several transactions."""
        return await self._store.queues.purge(queue, reason)

    async def workers(self) -> list[WorkerView]:
        """Returns the workers as last saved by their coordinator, with the present number of their running jobs."""
        places, leases = await self._store.workers.all(), await self._store.workers.leases()
        return [
            WorkerView(
                worker_id=place.worker,
                types=sorted(place.kind.routes),
                queues=sorted(place.kind.queues),
                slots=place.slots,
                running=leases.get(place.worker, 0),
                is_draining=place.is_draining,
                # Each worker keeps a long poll open at its coordinator, and is notified at once.
                is_streaming=True,
                heard_ms_ago=place.heard_ms_ago,
            )
            for place in places
        ]

    async def drain_worker(self, worker_id: str) -> None:
        """Marks the worker; its coordinator notifies it. Tries repeatedly: a new worker is saved with a short delay."""
        for _ in range(_LOOKS - 1):
            with suppress(NotFoundError):
                return await self._store.workers.ask_to_drain(worker_id)
            await asyncio.sleep(_LOOK_S)
        return await self._store.workers.ask_to_drain(worker_id)
