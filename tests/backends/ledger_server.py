"""The ledger in a server process, reached over the wire (its socket, or TCP) or over gRPC as other languages do it."""

import asyncio
from enum import Enum
from pathlib import Path

from holdfast.client.endpoints import Endpoint, TcpEndpoint, UnixEndpoint
from holdfast.client.remote import RemoteJobs
from holdfast.client.wire_transport import ReconnectingTransport, WireTransport
from holdfast.client.wire_work import WireWork
from holdfast.core.capabilities import LEDGER, Capabilities
from holdfast.ports import AdminApi, CapabilityApi, FeedApi, JobApi, ScheduleApi, WorkApi
from holdfast.testing.conformance.harness import Control, Need, Terms
from tests.backends.process_pool import Lender
from tests.e2e.fleet import Fleet, Program, stable_port
from tests.grpc_v1.grpc_transport import GrpcCarrier
from tests.grpc_v1.remote import RemoteJobs as GrpcJobs
from tests.grpc_v1.work_stream import StreamWork


class Carried(Enum):
    """The transports of the calls."""

    SOCKET = "ledger-socket"
    TCP = "ledger-tcp"
    GRPC = "ledger-grpc"


class Server:
    """One server process with a fixed directory and port."""

    def __init__(self, fleet: Fleet, data: Path, lease_ms: int) -> None:
        self._fleet = fleet
        self._lease_ms = lease_ms
        self.data = data
        self.target = f"127.0.0.1:{stable_port()}"
        self._program: Program

    def start(self) -> None:
        """Starts the process and waits until it is ready."""
        port = self.target.rpartition(":")[2]
        options = ("--lease-ms", str(self._lease_ms), "--worker-timeout-ms", "3600000", "--log-level", "error")
        self._program = self._fleet.start("server", "--data", str(self.data), "--port", port, *options)
        self._program.ready()

    def kill(self) -> None:
        """Kills the process, like a power cut."""
        self._program.kill()


class Servers(Lender[Server]):
    """Pool of single server processes."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self._fleet = fleet
        self._count = 0

    def new(self, lease_ms: int, *, is_kept: bool = True) -> Server:
        self._count += 1
        server = Server(self._fleet, self._fleet.folder / f"data-{self._count}", lease_ms)
        server.start()
        return server


class LedgerThere:
    """The connections of one test to a server."""

    def __init__(self, servers: Servers, carried: Carried) -> None:
        self._servers = servers
        self._carried = carried
        self._server: Server
        self._remote: RemoteJobs | GrpcJobs
        self._terms = Terms()

    @property
    def declared(self) -> Capabilities:
        return LEDGER

    @property
    def beyond(self) -> frozenset[Need]:
        return frozenset({Control.RESTART})

    @property
    def backend(self) -> CapabilityApi:
        return self._remote

    @property
    def jobs(self) -> JobApi:
        return self._remote

    @property
    def work(self) -> WorkApi:
        if self._carried is Carried.GRPC:
            return StreamWork(self._server.target)
        return WireWork(self._endpoint)

    @property
    def admin(self) -> AdminApi:
        return self._remote

    @property
    def feed(self) -> FeedApi:
        return self._remote

    @property
    def schedules(self) -> ScheduleApi:
        return self._remote.schedules

    @property
    def _endpoint(self) -> Endpoint:
        """The place of the wire; over TCP, the gRPC port redirects to it."""
        if self._carried is Carried.SOCKET:
            return UnixEndpoint(self._server.data / "holdfast.sock")
        return TcpEndpoint(self._server.target)

    async def start(self, terms: Terms) -> None:
        self._terms = terms
        self._server = await asyncio.to_thread(self._servers.lend, terms)
        await self._connect()

    async def _connect(self) -> None:
        if self._carried is Carried.GRPC:
            self._remote = GrpcJobs(GrpcCarrier(self._server.target))
        elif self._carried is Carried.SOCKET:
            self._remote = RemoteJobs(await WireTransport.connect(self._endpoint))
        else:
            self._remote = RemoteJobs(ReconnectingTransport(self._endpoint))

    async def stop(self) -> None:
        await self._remote.close()
        self._servers.give_back(self._terms, self._server)

    async def restart(self) -> None:
        await self._remote.close()
        await asyncio.to_thread(self._servers.restart, self._terms, self._server)
        await self._connect()

    async def advance(self, ms: int) -> None:
        raise NotImplementedError
