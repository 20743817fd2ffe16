"""`AdminApi` over a store: what operators ask a scheduler."""

import asyncio
from contextlib import suppress

from holdfast.core.lifecycle import RUNNING
from holdfast.core.model import QueueMode
from holdfast.errors import NotFoundError
from holdfast.ports import QueueView, Stats, WorkerView
from holdfast.topologies.pipeline.backend.store import Store

#: How often a worker is looked for that is not written down.
_LOOKS, _LOOK_S = 10, 0.1


class PipelineAdmin:
    """Numbers and switches, all of them in the database."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def stats(self) -> Stats:
        """There is no position: nobody writes everything down one after the other."""
        states = await self._store.queue_book.states()
        places = await self._store.places.all()
        return Stats(
            position=0,
            now_ms=await self._store.queue_book.now_ms(),
            states={state.name: count for state, count in states.items()},
            bytes_held=0,
            epoch=0,
            cluster_id=await self._store.cluster_id(),
            workers=len(places),
            slots=sum(place.slots for place in places),
            leases=states[RUNNING],
        )

    async def queues(self) -> list[QueueView]:
        """By name."""
        return await self._store.queue_book.queues()

    async def set_queue_mode(self, queue: str, mode: QueueMode, reason: str) -> None:
        """What runs, and what has just been started, goes on."""
        await self._store.queue_book.set_mode(queue, mode, reason)

    async def purge(self, queue: str, reason: str) -> int:
        """In several transactions."""
        return await self._store.queue_book.purge(queue, reason)

    async def workers(self) -> list[WorkerView]:
        """As their coordinator last wrote down; what they run, as it is."""
        places, leases = await self._store.places.all(), await self._store.places.leases()
        return [
            WorkerView(
                worker_id=place.worker,
                types=sorted(place.kind.routes),
                queues=sorted(place.kind.queues),
                slots=place.slots,
                running=leases.get(place.worker, 0),
                is_draining=place.is_draining,
                # Each keeps a question at its coordinator, and hears at once.
                is_streaming=True,
                heard_ms_ago=place.heard_ms_ago,
            )
            for place in places
        ]

    async def drain_worker(self, worker_id: str) -> None:
        """Told by its coordinator, who writes down who has just come a moment later."""
        for _ in range(_LOOKS - 1):
            with suppress(NotFoundError):
                return await self._store.places.ask_to_drain(worker_id)
            await asyncio.sleep(_LOOK_S)
        return await self._store.places.ask_to_drain(worker_id)
