"""Calls to a server over gRPC: many concurrent calls over one persistent stream, reopened after a loss."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any

import grpc
from google.protobuf.message import Message

from holdfast.client.access import NO_CREDENTIALS, Access
from holdfast.errors import HoldfastError, UnavailableError
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import holdfast_pb2_grpc as rpc
from holdfast.topologies.microservices.grpc_channel import open_channel
from holdfast.topologies.microservices.grpc_errors import FirstStatus, explained
from tests.grpc_v1.pending_calls import PendingCalls
from tests.grpc_v1.transport import Response, raise_refusal

Metadata = tuple[tuple[str, str], ...]
_PACKAGE = pb.DESCRIPTOR.package


def metadata_of(access: Access) -> Metadata:
    """Returns the metadata of every call: the token, if there is one."""
    return (("authorization", f"Bearer {access.token}"),) if access.token else ()


class GrpcCarrier:
    """A channel to `host:port`, opened by the first call."""

    def __init__(self, target: str, access: Access = NO_CREDENTIALS) -> None:
        self._target = target
        self._metadata = metadata_of(access)
        self._channel = open_channel(target, access)
        self._stream: _ConverseCall | None = None

    async def call(self, method: str, request: Message, response: type[Response], deadline_s: float | None) -> Response:
        """Sends a request over the stream that all calls share, and returns the response."""
        if self._stream is None or self._stream.is_over:
            self._stream = _ConverseCall(self._channel, self._target, self._metadata)
        reply = await self._stream.call(method, request.SerializeToString(), deadline_s)
        raise_refusal(reply)
        return response.FromString(reply.body)

    @property
    def line(self) -> object | None:
        """The stream that is open now, if any; the next one may lead to another server."""
        return self._stream if self._stream is not None and not self._stream.is_over else None

    async def stream(self, method: str, request: Message, response: type[Response]) -> AsyncGenerator[Response, None]:
        """Yields the responses, over a separate gRPC call."""
        path = f"/{_PACKAGE}.{method}"
        start = self._channel.unary_stream(path, lambda message: message.SerializeToString(), response.FromString)
        call: Any = start(request, metadata=self._metadata)
        try:
            async for message in call:
                yield message
        except grpc.aio.AioRpcError as error:
            raise explained(error, self._target) from error
        finally:
            call.cancel()

    async def close(self) -> None:
        """Closes the stream and the channel."""
        if self._stream is not None:
            await self._stream.close()
        await self._channel.close(None)


class _ConverseCall:
    """One `Converse` call, which matches replies to calls until it ends."""

    def __init__(self, channel: grpc.aio.Channel, target: str, metadata: Metadata) -> None:
        self._target = target
        self._call: Any = rpc.JobServiceStub(channel).Converse(metadata=metadata)
        self._status = FirstStatus(self._call)
        self._pending = PendingCalls()
        self._unsent: deque[pb.Call] = deque()
        self._wake = asyncio.Event()
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]
        self.is_over = False

    async def call(self, method: str, body: bytes, deadline_s: float | None) -> pb.Reply:
        return await self._pending.call(self._send, method, body, deadline_s)

    async def close(self) -> None:
        self._fail(UnavailableError("the connection was closed", reason="CONNECTION_LOST"))
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    def _send(self, call: pb.Call) -> None:
        self._unsent.append(call)
        self._wake.set()

    async def _write(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._unsent:
                    await self._call.write(self._unsent.popleft())
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            """The reader gets the same failure, with its cause."""

    async def _read(self) -> None:
        try:
            while isinstance(reply := await self._call.read(), pb.Reply):
                self._pending.settle(reply)
            error: HoldfastError = UnavailableError("the server ended the conversation", reason="CONNECTION_LOST")
        except grpc.aio.AioRpcError as failure:
            error = explained(self._status.of(failure), self._target)
        self._fail(error)

    def _fail(self, error: HoldfastError) -> None:
        self.is_over = True
        self._call.cancel()
        self._tasks[1].cancel()
        self._pending.fail(error)
