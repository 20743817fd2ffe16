"""Schedulers without a database: the ports of one shared ledger in memory behind real HTTP."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import msgspec

from holdfast.server.http.request import AdmittedRequest, HttpResponse, StreamedResponse
from holdfast.server.http.routing import Handler
from holdfast.testing.conformance.harness import Terms
from holdfast.topologies.pipeline.backend.load_balancer import LoadBalancer
from holdfast.topologies.pipeline.roles.role_health import RoleHealth
from holdfast.topologies.pipeline.roles.role_server import RoleServer
from holdfast.topologies.pipeline.roles.scheduler import port_routes
from tests.backends.ledger_in_process import LedgerHere
from tests.e2e.fleet import stable_port
from tests.integration.pipeline.long_timeouts import PatientLines

#: A short check interval, because tests wait for the checks.
INTERVAL_S = 0.05


class SchedulerHere:
    """One scheduler on a fixed port."""

    def __init__(self, ledger: LedgerHere) -> None:
        self._ledger = ledger
        self.port = stable_port()
        self.is_ready = True
        #: Whether it answers health checks only, and no other request.
        self.is_stuck = False
        #: Set when it receives a request while it is stuck.
        self.asked = asyncio.Event()
        self._server: RoleServer | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Starts to listen."""
        ledger = self._ledger
        routes = port_routes(ledger.jobs, ledger.admin, ledger.schedules, ledger.feed)
        heard = [msgspec.structs.replace(route, handler=self._heard(route.handler)) for route in routes]
        self._server = RoleServer(heard, RoleHealth("scheduler", is_ready=lambda: self.is_ready))
        await self._server.start("127.0.0.1", self.port)

    def _heard(self, handler: Handler) -> Handler:
        async def hear(asked: AdmittedRequest) -> HttpResponse | StreamedResponse:
            if self.is_stuck:
                self.asked.set()
                await asyncio.Event().wait()
            return await handler(asked)

        return hear

    async def stop(self) -> None:
        """Stops listening."""
        if self._server is not None:
            await self._server.stop(0)
            self._server = None


class Site:
    """Schedulers and a load balancer over them."""

    def __init__(self, ledger: LedgerHere, schedulers: Sequence[SchedulerHere]) -> None:
        self.ledger = ledger
        self.schedulers = schedulers
        self.lines = PatientLines()
        self.balancer = LoadBalancer([one.address for one in schedulers], self.lines, INTERVAL_S)

    async def until(self, *are_well: bool) -> None:
        """Waits until the balancer's view of each scheduler's health is the given one."""
        async with asyncio.timeout(30):
            while [one.is_well for one in self.balancer.schedulers] != list(are_well):  # noqa: ASYNC110 - it has no event for it
                await asyncio.sleep(INTERVAL_S / 5)


@contextlib.asynccontextmanager
async def site(count: int) -> AsyncIterator[Site]:
    """Runs `count` schedulers for the duration of a block."""
    ledger = LedgerHere(None)
    await ledger.start(Terms())
    made = Site(ledger, [SchedulerHere(ledger) for _ in range(count)])
    for one in made.schedulers:
        await one.start()
    await made.balancer.start()
    try:
        yield made
    finally:
        await made.balancer.close()
        await made.lines.close()
        for one in made.schedulers:
            await one.stop()
        await ledger.stop()
