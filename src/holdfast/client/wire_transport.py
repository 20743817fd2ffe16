"""Calls over the wire, on an event loop: one connection, or one that is opened again after a loss."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Self, TypeVar

from holdfast import limits
from holdfast.client.access import NO_CREDENTIALS, Access
from holdfast.client.endpoints import CONNECT_S, Endpoint, TcpEndpoint
from holdfast.client.wire_line import WireLine, open_line
from holdfast.errors import (
    DeadlineExceededError,
    HoldfastError,
    InternalError,
    InvalidArgumentError,
    UnavailableError,
)
from holdfast.wire.messages import CALLS, ERROR, MALFORMED, MORE, NO_SHARD, Reply, decode_failure, decode_reply, encode
from holdfast.wire.methods import WireMethod

Q = TypeVar("Q")
R = TypeVar("R")

#: Reading from the connection pauses when more items of a stream than this are unread.
_UNREAD_MAX = 64
#: How long `close` waits until pending requests were sent.
_CLOSE_S = 1.0


def encoded_call(call_id: int, method: WireMethod[Q, Any], request: Q) -> bytes:
    """Encodes a call; `InvalidArgumentError` for values that the wire cannot carry."""
    try:
        message = encode((call_id, method.name, request))
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"the request cannot be encoded: {error}", reason="REQUEST_INVALID") from error
    if len(message) > limits.MESSAGE_BYTES_MAX:
        text = f"a request must have at most {limits.MESSAGE_BYTES_MAX} bytes, got {len(message)}; split it"
        raise InvalidArgumentError(text, reason="REQUEST_TOO_LARGE")
    return message


def raise_failure(reply: Reply) -> None:
    """Raises the error in a reply, if there is one."""
    if reply.kind == ERROR:
        try:
            failure = decode_failure(reply.body)
        except MALFORMED as error:
            message = f"the server's error cannot be decoded: {error}"
            raise InternalError(message, reason="RESPONSE_MALFORMED") from error
        raise failure.error()


def response_of(method: WireMethod[Any, R], reply: Reply) -> R:
    """Returns the response in a reply; raises its error, or `InternalError` if it is not what the method returns."""
    raise_failure(reply)
    try:
        response: R = method.decode_response(reply.body)
    except MALFORMED as error:
        text = f"the response to {method.name} cannot be decoded: {error}; use the same release on both sides"
        raise InternalError(text, reason="RESPONSE_MALFORMED") from error
    return response


def expired(method: WireMethod[Any, Any]) -> DeadlineExceededError:
    """Returns the error for a call without a response."""
    return DeadlineExceededError(f"no response to {method.name} in time; whether it took effect is unknown")


class WireTransport:
    """Concurrent calls over one connection; each stream has a connection of its own. It does not reconnect."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._futures: dict[int, asyncio.Future[Reply]] = {}
        self._last_id = 0
        self._line: WireLine | None = None
        self._failure: HoldfastError | None = None
        self._is_closed = False

    @classmethod
    async def connect(cls, endpoint: Endpoint, within_s: float = CONNECT_S) -> Self:
        """Connects; `UnavailableError` (UNREACHABLE) if no server listens there."""
        transport = cls(endpoint)
        transport._line = await open_line(endpoint, CALLS, transport._take, transport._lose, within_s=within_s)
        return transport

    @property
    def is_connected(self) -> bool:
        """Whether the connection is open."""
        return self._line is not None and self._line.is_open

    async def lost(self) -> None:
        """Returns when the connection has ended."""
        if self._line is not None:
            await self._line.closed.wait()

    async def call(self, method: WireMethod[Q, R], request: Q, deadline_s: float | None) -> R:
        """Sends a request and returns the response. A lost connection: CONNECTION_LOST, for later calls UNREACHABLE."""
        line = self._line
        if line is None or not line.is_open:
            raise self._endpoint.unreachable(
                "the connection was closed" if self._is_closed else "the connection was lost"
            )
        self._last_id = call_id = self._last_id + 1
        message = encoded_call(call_id, method, request)
        if not line.is_writable:
            await self._until_writable(line, method, deadline_s)
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._futures[call_id] = future
        timer = None if deadline_s is None else self._loop.call_later(deadline_s, _expire, future, method)
        try:
            line.send(message)
            reply = await future
        finally:
            if timer is not None:
                timer.cancel()
            if self._futures.pop(call_id, None) is not None:  # no reply came
                line.send(encode((call_id, "")))
        return response_of(method, reply)

    async def _until_writable(self, line: WireLine, method: WireMethod[Q, R], deadline_s: float | None) -> None:
        try:
            async with asyncio.timeout(deadline_s):
                await line.writable()
        except TimeoutError:
            raise expired(method) from None
        if not line.is_open:
            raise _lost(line)

    async def stream(self, method: WireMethod[Q, R], request: Q) -> AsyncGenerator[R, None]:
        """Yields the responses; a slow reader slows down the server for this stream only."""
        unread = _UnreadMessages()
        line = unread.line = await open_line(self._endpoint, CALLS, unread.take, unread.end)
        try:
            line.send(encoded_call(1, method, request))
            while (reply := await unread.next()).kind == MORE:
                yield response_of(method, reply)
            raise_failure(reply)
        finally:
            line.drop()

    async def close(self) -> None:
        """Closes the connection."""
        self._is_closed = True
        line = self._line
        if line is None or not line.is_open:
            return
        line.close()
        with contextlib.suppress(TimeoutError):  # the server does not read
            async with asyncio.timeout(_CLOSE_S):
                await line.closed.wait()
        line.drop()
        await line.closed.wait()

    def drop(self) -> None:
        """Ends the connection at once; calls in progress fail."""
        if self._line is not None:
            self._line.drop()

    def _take(self, message: bytes) -> None:
        reply = decode_reply(message)
        if reply.id:
            future = self._futures.pop(reply.id, None)
            if future is not None and not future.done():
                future.set_result(reply)
        elif reply.kind == ERROR:  # of the connection itself
            self._failure = decode_failure(reply.body).error()

    def _lose(self) -> None:
        futures, self._futures = self._futures, {}
        error = self._failure or _lost(self._line)
        for future in futures.values():
            if not future.done():
                future.set_exception(error)


def _expire(future: asyncio.Future[Reply], method: WireMethod[Any, Any]) -> None:
    if not future.done():
        future.set_exception(expired(method))


def _lost(line: WireLine | None) -> UnavailableError:
    why = line.problem if line is not None else "it was never opened"
    return UnavailableError(f"the connection to the server was lost: {why}", reason="CONNECTION_LOST")


class _UnreadMessages:
    """Items of one stream that were received but not read yet."""

    def __init__(self) -> None:
        self._replies: deque[Reply] = deque()
        self._wake = asyncio.Event()
        self._is_over = False
        self.line: WireLine | None = None

    def take(self, message: bytes) -> None:
        self._replies.append(decode_reply(message))
        if len(self._replies) > _UNREAD_MAX and self.line is not None:
            self.line.hold("unread", is_held=True)
        self._wake.set()

    def end(self) -> None:
        self._is_over = True
        self._wake.set()

    async def next(self) -> Reply:
        while not self._replies:
            if self._is_over:
                raise _lost(self.line)
            self._wake.clear()
            await self._wake.wait()
        reply = self._replies.popleft()
        if len(self._replies) < _UNREAD_MAX // 2 and self.line is not None:
            self.line.hold("unread", is_held=False)
        return reply


class ReconnectingTransport:
    """A connection to a server that may restart, opened by the first call and again after a loss."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._transport: WireTransport | None = None
        self._connecting = asyncio.Lock()
        #: The errors of attempts to connect are counted, and the last one is kept for calls that waited for it.
        self._failures = 0
        self._failure: HoldfastError | None = None

    @property
    def line(self) -> object | None:
        """The connection that is open now, if any; the next one may lead to another server."""
        return self._transport if self._transport is not None and self._transport.is_connected else None

    async def call(self, method: WireMethod[Q, R], request: Q, deadline_s: float | None) -> R:
        """Sends a request and returns the response; `UnavailableError` if no server listens."""
        transport = self._transport
        if transport is None or not transport.is_connected:
            transport = await self._connected(CONNECT_S if deadline_s is None else deadline_s)
        try:
            return await transport.call(method, request, deadline_s)
        except DeadlineExceededError:
            if self._endpoint.shard != NO_SHARD:  # the leader may be stopped, and another node lead
                self._endpoint.follow("")
                transport.drop()
            raise

    async def stream(self, method: WireMethod[Q, R], request: Q) -> AsyncGenerator[R, None]:
        """Yields the responses, over a separate connection."""
        async with aclosing(WireTransport(self._endpoint).stream(method, request)) as answers:
            async for answer in answers:
                yield answer

    async def close(self) -> None:
        """Closes the connection; a later call opens another one."""
        if self._transport is not None:
            await self._transport.close()

    async def _connected(self, within_s: float) -> WireTransport:
        """Connects; a call that waited for the attempt of another one shares its result, also if it failed."""
        failures = self._failures
        async with self._connecting:
            if self._transport is None or not self._transport.is_connected:
                if self._failure is not None and failures != self._failures:
                    raise self._failure
                self._transport = await self._connect(within_s)
            return self._transport

    async def _connect(self, within_s: float) -> WireTransport:
        try:
            return await WireTransport.connect(self._endpoint, within_s)
        except HoldfastError as error:
            self._failures, self._failure = self._failures + 1, error
            raise


def tcp_transport(address: str, access: Access = NO_CREDENTIALS) -> ReconnectingTransport:
    """Returns a transport to a server's `host:port`."""
    return ReconnectingTransport(TcpEndpoint(address, access))
