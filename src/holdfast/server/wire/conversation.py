"""The calls of one connection: many at a time, each answered when it is ready.

Invariants: every call gets exactly one last reply, unless it was canceled; no task outlives the conversation.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Protocol, cast

from holdfast import limits
from holdfast.core.commands import Refusal
from holdfast.errors import (
    HoldfastError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
    UnimplementedError,
)
from holdfast.server.auth.permissions import CallerSession
from holdfast.server.refusal_log import hidden, log_refusal
from holdfast.server.wire.calls import ServedMethod, Table
from holdfast.wire.messages import ERROR, LAST, MALFORMED, MORE, Call, WireFailure, decode_call, encode

#: Concurrent calls in one conversation. Calls that wait for jobs take long, so the limit is high; each call costs some
#: kilobytes.
CALLS_MAX = 50_000
#: Size of the pending requests above which no more are read.
PENDING_BYTES_MAX = 32 << 20
_METHOD_CHARS_MAX = 200


class CallerLine(Protocol):
    """The connection of the caller."""

    @property
    def is_writable(self) -> bool:
        """Whether the client reads its replies."""
        ...

    def send(self, message: bytes) -> None:
        """Sends a message, or buffers it; never blocks."""
        ...

    async def writable(self) -> None:
        """Waits until the client reads its replies."""
        ...

    def hold(self, why: str, *, is_held: bool) -> None:
        """Pauses reading calls, or resumes it."""
        ...

    def close(self) -> None:
        """Closes the connection after all replies were sent."""
        ...


class _OpenCall:
    """One call in progress, and how to give it up."""

    __slots__ = ("give_up", "method", "size")

    def __init__(self, method: ServedMethod, size: int) -> None:
        self.method = method
        self.size = size
        self.give_up: Callable[[], object] | None = None


class Conversation:
    """The calls in progress of one client."""

    def __init__(self, table: Table, line: CallerLine, peer: str, session: CallerSession | None) -> None:
        """`session` checks the permissions of the caller; without one, every call is permitted."""
        self._table = table
        self._line = line
        self._peer = peer
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._calls: dict[int, _OpenCall] = {}
        self._pending_bytes = 0
        self._is_stopping = False

    def take(self, message: bytes) -> None:
        """Starts or cancels a call. Raises `InvalidArgumentError` if replies would be ambiguous."""
        call = decode_call(message)
        if not call.method:
            self._give_up(call.id)
        elif call.id in self._calls or call.id < 1:
            message_text = f"the call id {call.id} is not positive, or in use; use a new id for every call"
            raise InvalidArgumentError(message_text, reason="CALL_ID_IN_USE")
        else:
            try:
                self._begin(call, self._admitted(call.method), len(message))
            except HoldfastError as error:
                self._refuse(call.id, call.method, error)

    def _admitted(self, name: str) -> ServedMethod:
        method = self._table.get(name)
        if method is None:
            raise UnimplementedError(f"this server has no method {name[:_METHOD_CHARS_MAX]!r}", reason="METHOD_UNKNOWN")
        if self._session is not None:
            self._session.admit(method.scope)
        if self._is_stopping:
            raise UnavailableError("the server is stopping; try another server, or try again later", reason="STOPPING")
        if len(self._calls) >= CALLS_MAX:
            message = f"more than {CALLS_MAX} calls are in progress on this connection; wait for some of them"
            raise ResourceExhaustedError(message, reason="TOO_MANY_CALLS")
        return method

    def _begin(self, call: Call, method: ServedMethod, size: int) -> None:
        try:
            request = method.decode(call.body)
        except MALFORMED as error:
            message = f"expected a request of the method {method.name}: {error}"
            raise InvalidArgumentError(message, reason="MESSAGE_MALFORMED") from error
        call_id = call.id
        self._calls[call_id] = opened = _OpenCall(method, size)
        self._pending_bytes += size
        if self._pending_bytes > PENDING_BYTES_MAX:
            self._line.hold("calls in progress", is_held=True)
        if method.begin is None:
            opened.give_up = self._loop.create_task(self._run(call_id, opened, request)).cancel
            return
        try:
            opened.give_up = method.begin(request, lambda reply: self._answer(call_id, opened, reply))
        except HoldfastError as error:
            self._answer(call_id, opened, error, request)
        except Exception as error:  # noqa: BLE001 - no request may stop the server
            self._answer(call_id, opened, hidden(error, method.name), request)

    async def _run(self, call_id: int, opened: _OpenCall, request: object) -> None:
        method = opened.method
        try:
            if method.is_stream:
                await self._stream(call_id, method.handler(request))
                response = None
            else:
                response = await method.handler(request)
        except HoldfastError as error:
            self._answer(call_id, opened, error, request)
        except Exception as error:  # noqa: BLE001 - no request may stop the server
            self._answer(call_id, opened, hidden(error, method.name), request)
        else:
            self._answer(call_id, opened, response)

    async def _stream(self, call_id: int, items: AsyncIterator[object]) -> None:
        async with aclosing(cast("Any", items)) as iterator:
            async for item in iterator:
                await self._line.writable()
                self._line.send(_encoded(call_id, MORE, item))

    def _answer(self, call_id: int, opened: _OpenCall, reply: object, request: object = None) -> None:
        """Sends the last reply, unless the call was canceled; a response waits while the client does not read."""
        if self._calls.get(call_id) is not opened:
            return
        if isinstance(reply, Refusal):
            reply = reply.error()
        if not self._line.is_writable and not isinstance(reply, HoldfastError):
            # Not encoded yet: many large responses would need much memory.
            opened.give_up = self._loop.create_task(self._answer_later(call_id, opened, reply)).cancel
            return
        self._end(call_id, opened)
        if isinstance(reply, HoldfastError):
            self._refuse(call_id, opened.method.name, reply, request)
            return
        try:
            self._line.send(_encoded(call_id, LAST, reply))
        except HoldfastError as error:
            self._refuse(call_id, opened.method.name, error, request)
        except Exception as error:  # noqa: BLE001 - every call gets a reply
            self._refuse(call_id, opened.method.name, hidden(error, opened.method.name), request)

    async def _answer_later(self, call_id: int, opened: _OpenCall, reply: object) -> None:
        await self._line.writable()
        self._answer(call_id, opened, reply)

    def _end(self, call_id: int, opened: _OpenCall) -> None:
        del self._calls[call_id]
        was_full = self._pending_bytes > PENDING_BYTES_MAX
        self._pending_bytes -= opened.size
        if was_full and self._pending_bytes <= PENDING_BYTES_MAX:
            self._line.hold("calls in progress", is_held=False)
        if self._is_stopping and not self._calls:
            # In the next iteration, so that the last reply is sent first.
            self._loop.call_soon(self._line.close)

    def stop(self) -> None:
        """Refuses new calls, and closes the connection once all calls in progress are answered."""
        self._is_stopping = True
        if not self._calls:
            self._line.close()

    def close(self) -> None:
        """Cancels all calls, because the client is gone."""
        for call_id in list(self._calls):
            self._give_up(call_id)

    def end(self, error: HoldfastError) -> None:
        """Ends the connection, because its caller lost the permission."""
        self._refuse(0, "open", error)
        self._line.close()

    def _give_up(self, call_id: int) -> None:
        opened = self._calls.get(call_id)
        if opened is not None:
            self._end(call_id, opened)
            if opened.give_up is not None:
                opened.give_up()

    def _refuse(self, call_id: int, method: str, error: HoldfastError, request: object = None) -> None:
        log_refusal(error, method[:_METHOD_CHARS_MAX], self._peer, getattr(request, "job_id", ""))
        self._line.send(encode((call_id, ERROR, WireFailure.of(error))))


def _encoded(call_id: int, kind: int, response: object) -> bytes:
    reply = encode((call_id, kind, response))
    if len(reply) > limits.MESSAGE_BYTES_MAX:
        message = f"the response has {len(reply)} bytes, more than a message may have; request less"
        raise ResourceExhaustedError(message, reason="ANSWER_TOO_LARGE")
    return reply
