"""Every transport to a server, so that each test of a conversation runs over all of them.

`socket` and `tcp` are the wire, as our own clients and workers use it. `converse` and `unary` are gRPC with
`holdfast.v1`, as other languages use it: many calls over one stream, or one gRPC call per call.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import grpc
from google.protobuf.message import Message

from holdfast.client.access import NO_CREDENTIALS, Access
from holdfast.client.endpoints import Endpoint, TcpEndpoint, UnixEndpoint
from holdfast.client.remote import RemoteJobs
from holdfast.client.retry_policy import RetryPolicy
from holdfast.client.transport import Transport
from holdfast.client.wire_transport import ReconnectingTransport, WireTransport
from holdfast.client.wire_work import WireWork
from holdfast.errors import UnavailableError
from holdfast.ports import AdminApi, CapabilityApi, FeedApi, FeedPart, JobApi, JobView, WorkApi
from holdfast.proto import holdfast_pb2 as pb
from holdfast.server.ledger_server import LedgerServer
from holdfast.server.unix_socket import SOCKET_NAME
from holdfast.topologies.microservices.grpc_errors import explained
from holdfast.wire.methods import GET, SETTLED, OneJob, WireMethod
from tests.grpc_v1.grpc_transport import GrpcCarrier
from tests.grpc_v1.remote import RemoteJobs as GrpcJobs
from tests.grpc_v1.transport import Response
from tests.grpc_v1.work_stream import StreamWork

T = TypeVar("T")

CARRIERS = ("socket", "tcp", "converse", "unary")
#: Those with many calls over one connection, and with sessions of workers.
CONVERSATIONS = ("socket", "tcp", "converse")
#: Those for clients on other machines.
NETWORKS = ("tcp", "converse")
#: The same, and the wire of a client that was given the address of gRPC.
REACHED = (*NETWORKS, "redirected")


class Remote(JobApi, AdminApi, FeedApi, CapabilityApi, Protocol):
    """A client of one server, whichever protocol it uses."""

    def watch(self, job_id: str) -> AsyncGenerator[JobView, None]:
        """Yields the job now and after each change."""
        ...

    def feed(self, after: int | None) -> AsyncGenerator[FeedPart, None]:
        """Yields all events."""
        ...

    async def close(self) -> None:
        """Closes the connection."""
        ...


class Calls(Protocol):
    """The calls of one connection that no `Remote` makes."""

    #: The client over the same connection.
    remote: Remote

    async def settled(self, job_id: str, deadline_s: float | None) -> None:
        """Waits for the end of a job, with a deadline."""
        ...

    async def unknown(self) -> None:
        """Calls a method that no server has."""
        ...

    async def malformed(self) -> None:
        """Calls a method with a request of another type."""
        ...


class WireCalls:
    """Calls over the wire."""

    def __init__(self, carrier: Transport, retry_policy: RetryPolicy | None = None) -> None:
        self._transport = carrier
        self.remote: Remote = RemoteJobs(Patient(carrier), retry_policy)

    async def settled(self, job_id: str, deadline_s: float | None) -> None:
        await self._transport.call(SETTLED, OneJob(job_id), deadline_s)

    async def unknown(self) -> None:
        dance: WireMethod[OneJob, JobView] = WireMethod("jobs.dance", OneJob, JobView)
        await self._transport.call(dance, OneJob("x"), None)

    async def malformed(self) -> None:
        await self._transport.call(GET, cast("OneJob", {"no": "array"}), None)


class GrpcCalls:
    """Calls over gRPC."""

    def __init__(self, carrier: GrpcCarrier, retry_policy: RetryPolicy | None = None) -> None:
        self._transport = carrier
        self.remote: Remote = GrpcJobs(Patient(carrier), retry_policy)

    async def settled(self, job_id: str, deadline_s: float | None) -> None:
        await self._transport.call("JobService/AwaitJob", pb.AwaitJobRequest(job_id=job_id), pb.Job, deadline_s)

    async def unknown(self) -> None:
        await self._transport.call("JobService/Dance", pb.GetJobRequest(), pb.Job, None)

    async def malformed(self) -> None:
        await self._transport.call("JobService/GetJob", cast("Message", _NoMessage()), pb.Job, None)


class _NoMessage:
    """An object that is sent like a message."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - as protobuf names it
        return b"\xff" * 10


class UnaryCarrier(GrpcCarrier):
    """Plain gRPC: one gRPC call per call."""

    async def call(self, method: str, request: Message, response: type[Response], deadline_s: float | None) -> Response:
        path = f"/holdfast.v1.{method}"
        call: Any = self._channel.unary_unary(path, lambda message: message.SerializeToString(), response.FromString)
        try:
            return await call(request, timeout=deadline_s)  # type: ignore[no-any-return]  # what the decoder gives
        except grpc.aio.AioRpcError as error:
            raise explained(error, self._target) from error


class Patient:
    """A carrier of either kind without deadlines, so that a slow machine fails no test."""

    def __init__(self, carrier: Transport | GrpcCarrier) -> None:
        anything: Any = carrier
        self._call = anything.call
        self.stream, self.close = anything.stream, anything.close

    async def call(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - the two kinds have different arguments
        assert not named, "the deadline is the last argument"
        return await self._call(*arguments[:-1], None)


class Hearing(RetryPolicy):
    """Makes every call once, and once more if its response was lost.

    gRPC reports a refused stream as a lost connection if a message is being written at the time of the refusal.
    """

    async def call(self, attempt_once: Callable[[], Awaitable[T]], *, is_repeatable: bool) -> T:
        while True:
            try:
                return await attempt_once()
            except UnavailableError as error:
                if not is_repeatable or error.reason != "CONNECTION_LOST":
                    raise


def socket_of(server: LedgerServer) -> Path:
    return Path(server._settings.data) / SOCKET_NAME


def wire_address(server: LedgerServer) -> str:
    """The address of the wire over TCP, which is that of HTTP if there is HTTP."""
    return server.http_address or server.addresses["wire"]


def endpoint_of(server: LedgerServer, kind: str) -> Endpoint:
    return UnixEndpoint(socket_of(server)) if kind == "socket" else TcpEndpoint(wire_address(server))


async def calls_to(server: LedgerServer, kind: str) -> Calls:
    """Connects."""
    if kind in ("socket", "tcp"):
        return WireCalls(await WireTransport.connect(endpoint_of(server, kind)))
    return GrpcCalls(GrpcCarrier(server.address) if kind == "converse" else UnaryCarrier(server.address))


def address_of(server: LedgerServer, kind: str) -> str:
    """The address with which a client of this kind begins."""
    return wire_address(server) if kind == "tcp" else server.address


def lasting_remote(
    server: LedgerServer, kind: str, access: Access = NO_CREDENTIALS, retry_policy: RetryPolicy | None = None
) -> Remote:
    """A client over the network, which connects at its first call and again after a loss."""
    address = address_of(server, kind)
    if kind == "converse":
        return GrpcCalls(GrpcCarrier(address, access), retry_policy).remote
    return WireCalls(ReconnectingTransport(TcpEndpoint(address, access)), retry_policy).remote


@asynccontextmanager
async def remote_to(server: LedgerServer, kind: str) -> AsyncIterator[Remote]:
    remote = (await calls_to(server, kind)).remote
    try:
        yield remote
    finally:
        await remote.close()


def work_of(server: LedgerServer, kind: str, access: Access = NO_CREDENTIALS) -> WorkApi:
    if kind == "converse":
        return StreamWork(server.address, access)
    return WireWork(
        UnixEndpoint(socket_of(server)) if kind == "socket" else TcpEndpoint(address_of(server, kind), access)
    )
