"""The calls of one connection: many at a time, each answered when it is ready.

Invariants: every call gets exactly one last reply, unless it was canceled; no task outlives the conversation; replies
that were not sent yet take a limited amount of memory, whether or not the client reads.

The last one needs three rules. A call that reads one thing, or waits for the end of a job, reserves nothing, because
many of them may wait for a sync or a job; if the client does not read when the reply is ready, the reply is kept while
the budget has room for it, and otherwise dropped and computed again later. Any other call starts only when the budget
has room for its largest possible reply; until then it waits undecoded, and beyond a number of waiting calls no more are
read. A stream computes an item only when the client reads, and a connection has few streams.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Protocol, cast

import msgspec

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
from holdfast.server.wire.reply_budget import ReplyBudget
from holdfast.wire.messages import ERROR, LAST, MALFORMED, MORE, Call, WireFailure, decode_call, encode

#: Concurrent calls in one conversation. Calls that wait for jobs take long, so the limit is high; each call costs some
#: kilobytes.
CALLS_MAX = 50_000
#: Size of the pending requests above which no more are read.
PENDING_BYTES_MAX = 32 << 20
#: Concurrent streams in one conversation: each may have computed an item. Our own clients have one per connection.
STREAMS_MAX = 4
#: Calls that wait for room in the budget, above which no more are read. Below, the server reads on, so that it receives
#: cancels, and calls that need no room.
WAITING_CALLS_MAX = 1_000
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

    __slots__ = ("body", "give_up", "method", "request", "reserved_bytes", "size")

    def __init__(self, method: ServedMethod, body: msgspec.Raw, size: int) -> None:
        self.method = method
        #: The request until it is decoded, which is when the call starts; then None.
        self.body: msgspec.Raw | None = body
        #: The decoded request, while the call may have to start again.
        self.request: Any = None
        self.size = size
        self.reserved_bytes = 0
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
        self._streams = 0
        self._budget = ReplyBudget()
        #: Calls that wait for room in the budget, oldest first.
        self._queue: OrderedDict[int, _OpenCall] = OrderedDict()
        self._is_starting = self._is_held = False
        #: Responses that wait until the client reads, oldest first.
        self._unsent: OrderedDict[int, tuple[_OpenCall, object]] = OrderedDict()
        self._sender: asyncio.Task[None] | None = None
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
        if method.is_stream and self._streams >= STREAMS_MAX:
            message = f"more than {STREAMS_MAX} streams are open on this connection; open another connection"
            raise ResourceExhaustedError(message, reason="TOO_MANY_STREAMS")
        return method

    def _begin(self, call: Call, method: ServedMethod, size: int) -> None:
        call_id = call.id
        self._calls[call_id] = opened = _OpenCall(method, call.body, size)
        self._streams += method.is_stream
        self._pending_bytes += size
        if self._pending_bytes > PENDING_BYTES_MAX:
            self._line.hold("calls in progress", is_held=True)
        if (self._queue and method.reply_bytes is not None) or not self._is_started(call_id, opened):
            self._enqueue(call_id, opened)

    def _is_started(self, call_id: int, opened: _OpenCall) -> bool:
        """Starts a call; False if its reply has no room yet."""
        method, request = opened.method, opened.request
        if opened.body is not None:
            try:
                request, opened.body = method.decode(opened.body), None
            except MALFORMED as error:
                message = f"expected a request of the method {method.name}: {error}"
                self._answer(call_id, opened, InvalidArgumentError(message, reason="MESSAGE_MALFORMED"))
                return True
            if method.reply_bytes is None:
                opened.request = request
                self._start(call_id, opened, request)
                return True
        size = method.reply_bytes(request) if method.reply_bytes is not None else method.repeated_bytes
        if not self._budget.reserve(size):
            opened.request = request
            return False
        opened.reserved_bytes, opened.request = size, None
        self._start(call_id, opened, request)
        return True

    def _start(self, call_id: int, opened: _OpenCall, request: object) -> None:
        method = opened.method
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
                await self._line.writable()  # before the next item is computed

    # -- calls that wait for room

    def _enqueue(self, call_id: int, opened: _OpenCall) -> None:
        self._queue[call_id] = opened
        self._hold_if_many_wait()

    def _hold_if_many_wait(self) -> None:
        is_held = len(self._queue) > WAITING_CALLS_MAX
        if is_held != self._is_held:
            self._is_held = is_held
            self._line.hold("replies in progress", is_held=is_held)

    def _start_queued(self) -> None:
        """Starts waiting calls, oldest first, as long as there is room for their replies."""
        if self._is_starting:  # a call that ends while it starts; the loop below goes on
            return
        self._is_starting = True
        while self._queue:
            call_id, opened = self._queue.popitem(last=False)
            if not self._is_started(call_id, opened):
                self._queue[call_id] = opened
                self._queue.move_to_end(call_id, last=False)
                break
        self._is_starting = False
        self._hold_if_many_wait()

    # -- replies

    def _answer(self, call_id: int, opened: _OpenCall, reply: object, request: object = None) -> None:
        """Sends the last reply, unless the call was canceled; a response waits while the client does not read."""
        if self._calls.get(call_id) is not opened:
            return
        if isinstance(reply, Refusal):
            reply = reply.error()
        if (self._unsent or not self._line.is_writable) and not isinstance(reply, HoldfastError):
            self._keep(call_id, opened, reply)
        else:
            self._send_last(call_id, opened, reply, request)

    def _send_last(self, call_id: int, opened: _OpenCall, reply: object, request: object = None) -> None:
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

    def _keep(self, call_id: int, opened: _OpenCall, reply: object) -> None:
        """Keeps a response until the client reads; without room for it, the call starts again later."""
        opened.give_up = None
        if opened.method.repeated_bytes and not opened.reserved_bytes:
            if self._queue:  # there was no room for others
                self._enqueue(call_id, opened)
                return
            try:  # the size is not known otherwise
                reply = msgspec.Raw(encode(reply))
            except Exception as error:  # noqa: BLE001 - every call gets a reply
                self._send_last(call_id, opened, hidden(error, opened.method.name))
                return
            if not self._budget.reserve(len(reply)):
                self._enqueue(call_id, opened)
                return
            opened.reserved_bytes = len(reply)
        self._unsent[call_id] = (opened, reply)
        if self._sender is None:
            self._sender = self._loop.create_task(self._send_unsent())

    async def _send_unsent(self) -> None:
        while self._unsent:
            await self._line.writable()
            if self._unsent:  # they may have been canceled meanwhile
                call_id, (opened, reply) = self._unsent.popitem(last=False)
                self._send_last(call_id, opened, reply)
        self._sender = None

    def _end(self, call_id: int, opened: _OpenCall) -> None:
        del self._calls[call_id]
        self._streams -= opened.method.is_stream
        was_full = self._pending_bytes > PENDING_BYTES_MAX
        self._pending_bytes -= opened.size
        if was_full and self._pending_bytes <= PENDING_BYTES_MAX:
            self._line.hold("calls in progress", is_held=False)
        if opened.reserved_bytes:
            self._budget.release(opened.reserved_bytes)
        if self._queue:
            self._start_queued()
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
        self._queue.clear()
        self._unsent.clear()
        if self._sender is not None:
            self._sender.cancel()
        for call_id in list(self._calls):
            self._give_up(call_id)

    def end(self, error: HoldfastError) -> None:
        """Ends the connection, because its caller lost the permission."""
        self._refuse(0, "open", error)
        self._line.close()

    def _give_up(self, call_id: int) -> None:
        opened = self._calls.get(call_id)
        if opened is not None:
            self._unsent.pop(call_id, None)
            if self._queue.pop(call_id, None) is not None:
                self._hold_if_many_wait()
            self._end(call_id, opened)
            if opened.give_up is not None:
                opened.give_up()

    def _refuse(self, call_id: int, method: str, error: HoldfastError, request: object = None) -> None:
        log_refusal(error, method[:_METHOD_CHARS_MAX], self._peer, getattr(request, "job_id", ""))
        self._line.send(encode((call_id, ERROR, WireFailure.of(error))))


def _encoded(call_id: int, kind: int, response: object) -> bytes:
    if isinstance(response, list):
        _check_list(response)
    reply = encode((call_id, kind, response))
    if len(reply) > limits.MESSAGE_BYTES_MAX:
        raise _too_large(f"has {len(reply)} bytes")
    return reply


def _check_list(items: list[object]) -> None:
    """Refuses a list that fits into no message before all of it is encoded: together its items may take gigabytes."""
    size = 0
    for item in items:
        size += len(encode(item))
        if size > limits.MESSAGE_BYTES_MAX:
            raise _too_large(f"is a list of {len(items)} items")


def _too_large(found: str) -> ResourceExhaustedError:
    message = f"the response {found}, more than a message of {limits.MESSAGE_BYTES_MAX} bytes may have; request less"
    return ResourceExhaustedError(message, reason="ANSWER_TOO_LARGE")
