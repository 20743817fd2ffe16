"""Every transport to a server, so that each test of a conversation runs over all of them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from holdfast.client.grpc_transport import GrpcCarrier
from holdfast.client.refusals import explained
from holdfast.client.remote import RemoteJobs
from holdfast.client.retry_policy import Retrying
from holdfast.client.socket_transport import SocketCarrier
from holdfast.client.socket_work import SocketWork
from holdfast.client.transport import Carrier, Response
from holdfast.client.work_stream import StreamWork
from holdfast.errors import UnavailableError
from holdfast.ports import WorkApi
from holdfast.server.ledger_server import LedgerServer
from holdfast.server.unix_socket import SOCKET_NAME

T = TypeVar("T")

CARRIERS = ("socket", "converse", "unary")
CONVERSATIONS = ("socket", "converse")


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
    """A carrier without deadlines, so that a slow machine fails no test."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self.stream, self.close = carrier.stream, carrier.close

    async def call(self, method: str, request: Message, response: type[Response], deadline_s: float | None) -> Response:
        return await self._carrier.call(method, request, response, None)


class Hearing(Retrying):
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


async def carrier_to(server: LedgerServer, kind: str) -> Carrier:
    if kind == "socket":
        return await SocketCarrier.connect(socket_of(server))
    return GrpcCarrier(server.address) if kind == "converse" else UnaryCarrier(server.address)


@asynccontextmanager
async def remote_to(server: LedgerServer, kind: str) -> AsyncIterator[RemoteJobs]:
    async with RemoteJobs(Patient(await carrier_to(server, kind))) as remote:
        yield remote


def work_of(server: LedgerServer, kind: str) -> WorkApi:
    return SocketWork(socket_of(server)) if kind == "socket" else StreamWork(server.address)
