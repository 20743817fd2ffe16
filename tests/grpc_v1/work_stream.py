"""`WorkApi` over the gRPC stream of `holdfast.v1`."""

import asyncio
from typing import Any

import grpc

from holdfast.client.access import NO_CREDENTIALS, Access
from holdfast.errors import FINAL, HoldfastError, UnavailableError
from holdfast.ports import Introduction
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import holdfast_pb2_grpc as rpc
from holdfast.topologies.microservices.grpc_channel import open_channel
from holdfast.topologies.microservices.grpc_errors import FirstStatus, explained
from tests.grpc_v1.grpc_transport import metadata_of
from tests.grpc_v1.work_session import StreamSession


class StreamWork:
    """Opens sessions with one server."""

    def __init__(self, target: str, access: Access = NO_CREDENTIALS, *, advice: str = "") -> None:
        """`advice` is the part of the error message that says what to do if no server answers."""
        self._target = target
        self._access = access
        self._advice = advice

    async def open(self, introduction: Introduction) -> StreamSession:
        """Connects and sends hello; each session has a channel of its own, so that it cannot inherit a broken one."""
        session = StreamSession(_GrpcLine(self._target, self._access, self._advice))
        try:
            await session.start(introduction)
        except BaseException:
            await session.close()
            raise
        return session


class _GrpcLine:
    """One call of `Work`."""

    def __init__(self, target: str, access: Access, advice: str) -> None:
        self._target = target
        self._advice = advice
        self._channel = open_channel(target, access)
        self._call: Any = rpc.WorkServiceStub(self._channel).Work(metadata=metadata_of(access))
        self._status = FirstStatus(self._call)
        self._reading: asyncio.Future[Any] | None = None

    async def send(self, message: pb.WorkerMessage) -> None:
        try:
            await self._call.write(message)
        except grpc.aio.AioRpcError as error:
            raise _error(self._status.of(error), self._target, self._advice) from error
        except asyncio.InvalidStateError as error:
            raise UnavailableError("the session has ended") from error

    async def receive(self) -> pb.CoordinatorMessage:
        # A canceled read would end the whole stream, so the read continues when its waiter is canceled.
        reading = self._reading = self._reading or asyncio.ensure_future(self._call.read())
        try:
            message = await asyncio.shield(reading)
        except grpc.aio.AioRpcError as error:
            raise _error(self._status.of(error), self._target, self._advice) from error
        except asyncio.CancelledError:
            if self._call.cancelled():
                raise UnavailableError("the session was closed") from None
            raise
        self._reading = None
        if not isinstance(message, pb.CoordinatorMessage):
            raise UnavailableError("the server ended the session")
        return message

    async def finish(self) -> None:
        try:
            await self._call.done_writing()
        except asyncio.InvalidStateError as error:
            raise UnavailableError("the session has ended") from error

    def drop(self) -> None:
        self._call.cancel()

    async def close(self) -> None:
        self._call.cancel()
        await self._channel.close(None)
        if self._reading is not None:
            await asyncio.wait([self._reading])
            self._reading.cancelled() or self._reading.exception()  # or asyncio would log it


def _error(error: grpc.aio.AioRpcError, target: str, advice: str) -> HoldfastError:
    """Keeps errors that a new session cannot fix; all others become `UnavailableError`, which is retried."""
    known = explained(error, target, advice)
    return known if isinstance(known, FINAL) else UnavailableError(known.message, reason=known.reason)
