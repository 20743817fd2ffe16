"""Three roles of the pipeline behind their routes, without sockets and without a database.

A queue process, an exchange that routes to it, and a coordinator whose store refuses values that PostgreSQL cannot
hold.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence

import msgspec

from holdfast.server.http.request import JSON_TYPE, Head, HttpResponse
from holdfast.server.http.routing import Route
from holdfast.topologies.pipeline.backend.http_client import RoleConnections
from holdfast.topologies.pipeline.backend.store import QueueAssignment
from holdfast.topologies.pipeline.roles.coordinator import CoordinatorConfig, PipelineCoordinator
from holdfast.topologies.pipeline.roles.exchange import ExchangeConfig, ExchangeRole
from holdfast.topologies.pipeline.roles.queue import QueueConfig, QueueRole
from holdfast.topologies.pipeline.roles.role_health import RoleHealth
from holdfast.topologies.pipeline.roles.role_server import RoleApplication
from holdfast.topologies.pipeline.roles.worker_table import QueueList
from tests.fuzz.world import PATIENCE_S, settle

_ERROR = 400
_BITS_32 = 1 << 32
_QUEUE = "queue:1"


class RoleClient:
    """One role behind its routes, without a socket."""

    def __init__(self, routes: Sequence[Route], vitals: RoleHealth) -> None:
        self.routes = routes
        self._application = RoleApplication(routes, vitals, "127.0.0.1")

    async def ask(self, method: str, path: str, body: bytes = b"", kind: bytes = JSON_TYPE) -> HttpResponse:
        headers = [(b"host", b"127.0.0.1"), (b"content-type", kind), (b"content-length", b"%d" % len(body))]
        asked = self._application.admit(Head(method, path, headers, "127.0.0.1:1"))
        if isinstance(asked, HttpResponse):
            return asked
        asked.body = body
        answering = asyncio.ensure_future(self._application.answer(asked))
        await settle()
        if not answering.done() and asked.over is not None:
            asked.over.set()  # ends a long poll at once
        answer = await asyncio.wait_for(answering, PATIENCE_S)
        assert answer is not None
        return answer


class Roles:
    """The three roles."""

    def __init__(self) -> None:
        self._queue = QueueRole(QueueConfig(lane_max=3, lane_wanted=2))
        door = RoleClient(self._queue.routes(), self._queue.vitals())
        exchange = ExchangeRole(ExchangeConfig(normal=(_QUEUE,)), _DirectConnections(door))
        queues = QueueList(normal=(_QUEUE, "queue:2"), high=("queue:3",))
        self._coordinator = PipelineCoordinator(CoordinatorConfig(queues=queues), _WorkerStore())
        self._doors = [
            door,
            RoleClient(exchange.routes(), exchange.vitals()),
            RoleClient(self._coordinator.routes(), self._coordinator.vitals()),
        ]
        self.taking = [(door, route) for door in self._doors for route in door.routes if route.body is not None]

    async def check(self) -> None:
        """Checks that every GET route answers, and that the coordinator can store its state."""
        for door in self._doors:
            for route in door.routes:
                if route.method == "GET" and not route.is_stream:
                    answer = await door.ask("GET", route.path)
                    assert answer.status < _ERROR, f"{route.path}: {answer}"
                    msgspec.json.decode(answer.body)
        await self._coordinator._write_down()

    def end(self) -> None:
        """Ends the pending long polls."""
        self._queue.let_go()


class _DirectConnections(RoleConnections):
    """Connections that call one role directly."""

    def __init__(self, door: RoleClient) -> None:
        super().__init__()
        self._door = door

    async def _call(
        self, method: str, address: str, path: str, body: bytes | None, kind: str, deadline_s: float
    ) -> bytes:
        answer = await self._door.ask(method, path, body or b"", kind.encode())
        assert answer.status < _ERROR, f"{address} refused what an exchange took: {answer}"
        return answer.body


class _WorkerStore:
    """`WorkerStore` in memory, which refuses values that PostgreSQL cannot hold."""

    def __init__(self) -> None:
        self._places: dict[str, QueueAssignment] = {}

    async def save(self, places: Sequence[QueueAssignment]) -> None:
        for place in places:
            texts = (place.worker, place.session, *place.kind.routes, *place.kind.queues)
            assert not any("\0" in text for text in texts), f"no database can hold {place}"
            assert -_BITS_32 // 2 <= place.slots < _BITS_32 // 2
            self._places[place.worker] = place

    async def remove(self, workers: Collection[str]) -> None:
        for worker in workers:
            self._places.pop(worker, None)

    async def lose(self, worker: str, session: str, silent_ms: int) -> bool:
        return False

    async def all(self) -> list[QueueAssignment]:
        return list(self._places.values())

    async def leases(self) -> Mapping[str, int]:
        return {}

    async def ask_to_drain(self, worker: str) -> None:
        self._places[worker] = msgspec.structs.replace(self._places[worker], is_draining=True)
