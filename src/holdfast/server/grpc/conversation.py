"""The server's side of a `Converse` stream: many concurrent calls, each answered when it is ready.

Invariants: every call gets exactly one last reply, unless it was canceled; no task outlives the conversation.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Protocol, cast

from google.protobuf.message import DecodeError, Message

from holdfast import limits
from holdfast.errors import (
    HoldfastError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
    UnimplementedError,
)
from holdfast.proto import holdfast_pb2 as pb
from holdfast.server.auth.permissions import CallerSession
from holdfast.server.grpc.method_table import CallMethod, Table
from holdfast.server.refusal_log import hidden, log_refusal

#: Concurrent calls in one conversation. Calls that wait for jobs take long, so the limit is high; each call costs some
#: kilobytes.
CALLS_MAX = 50_000
#: Size of the pending requests above which no more are read.
PENDING_BYTES_MAX = 32 << 20
#: Space for the other fields of a reply.
_REPLY_BYTES = 1_024


class ReplySink(Protocol):
    """The output of a connection for replies."""

    def send(self, reply: pb.Reply) -> None:
        """Sends a reply, or keeps it until it can be sent; never blocks."""
        ...

    async def ready(self) -> None:
        """Waits until the client accepts more replies."""
        ...

    def hold(self, *, is_held: bool) -> None:
        """Stops reading calls, or resumes it."""
        ...


class GrpcConversation:
    """The calls in progress of one client, each in its own task."""

    def __init__(self, table: Table, sink: ReplySink, peer: str, session: CallerSession | None = None) -> None:
        """`session` checks the permissions of the caller; without one, every call is permitted."""
        self._table = table
        self._sink = sink
        self._peer = peer
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._pending_bytes = 0
        self._is_stopping = False
        self._when_idle: Callable[[], None] | None = None

    def take(self, call: pb.Call) -> None:
        """Starts or cancels a call. `InvalidArgumentError` if its id is in use: replies would be ambiguous."""
        if call.cancel:
            self._give_up(call.id)
        elif call.id in self._tasks:
            raise InvalidArgumentError(
                f"the call id {call.id} is already in use; use a new id for every call", reason="CALL_ID_IN_USE"
            )
        else:
            try:
                method = self._admitted(call.method)
            except HoldfastError as error:
                self._refuse(call.id, call.method, error)
            else:
                self._begin(call, method)

    def _begin(self, call: pb.Call, method: CallMethod) -> None:
        self._tasks[call.id] = self._loop.create_task(self._run(call, method))
        self._pending_bytes += len(call.body)
        if self._pending_bytes > PENDING_BYTES_MAX:
            self._sink.hold(is_held=True)

    def _admitted(self, name: str) -> CallMethod:
        method = self._table.get(name)
        if method is None:
            raise UnimplementedError(f"this server has no method {name[:200]!r}", reason="METHOD_UNKNOWN")
        if self._session is not None:
            self._session.admit(method.scope)
        if self._is_stopping:
            raise UnavailableError("the server is stopping; try another server, or try again later", reason="STOPPING")
        if len(self._tasks) >= CALLS_MAX:
            message = f"more than {CALLS_MAX} calls are in progress in this conversation; wait for some of them"
            raise ResourceExhaustedError(message, reason="TOO_MANY_CALLS")
        return method

    def stop(self, when_idle: Callable[[], None]) -> None:
        """Refuses new calls, and calls `when_idle` once all calls in progress are answered."""
        self._is_stopping = True
        self._when_idle = when_idle
        self._settle()

    def close(self) -> None:
        """Cancels all calls, because the client is gone."""
        for call_id in list(self._tasks):
            self._give_up(call_id)

    def _give_up(self, call_id: int) -> None:
        task = self._tasks.pop(call_id, None)
        if task is not None:
            task.cancel()

    def _settle(self) -> None:
        if self._when_idle is not None and not self._tasks:
            self._when_idle()

    async def _run(self, call: pb.Call, method: CallMethod) -> None:
        request = None
        try:
            request = method.request.FromString(call.body)
            if method.is_stream:
                await self._stream(call.id, method.handler(request))
                reply = pb.Reply(id=call.id)
            else:
                reply = _reply(call.id, await method.handler(request))
            self._sink.send(reply)
        except DecodeError:
            message = f"expected a request message of this method, got {len(call.body)} bytes that cannot be decoded"
            self._refuse(call.id, method.name, InvalidArgumentError(message, reason="MESSAGE_MALFORMED"))
        except HoldfastError as error:
            self._refuse(call.id, method.name, error, request)
        except Exception as error:  # noqa: BLE001 - no request may stop the server
            self._refuse(call.id, method.name, hidden(error, method.name), request)
        finally:
            self._end(call)

    def _end(self, call: pb.Call) -> None:
        self._tasks.pop(call.id, None)
        was_full = self._pending_bytes > PENDING_BYTES_MAX
        self._pending_bytes -= len(call.body)
        if was_full and self._pending_bytes <= PENDING_BYTES_MAX:
            self._sink.hold(is_held=False)
        self._settle()

    async def _stream(self, call_id: int, messages: AsyncIterator[Message]) -> None:
        async with aclosing(cast("Any", messages)) as iterator:
            async for message in iterator:
                await self._sink.ready()
                reply = _reply(call_id, message)
                reply.more = True
                self._sink.send(reply)

    def _refuse(self, call_id: int, method: str, error: HoldfastError, request: Message | None = None) -> None:
        log_refusal(error, method[:200], self._peer, getattr(request, "job_id", ""))
        self._sink.send(pb.Reply(id=call_id, code=error.code.value, reason=error.reason, message=error.message))


def _reply(call_id: int, response: Message) -> pb.Reply:
    body = response.SerializeToString()
    if len(body) > limits.MESSAGE_BYTES_MAX - _REPLY_BYTES:
        message = f"the response has {len(body)} bytes, more than a message may have; request less"
        raise ResourceExhaustedError(message, reason="ANSWER_TOO_LARGE")
    return pb.Reply(id=call_id, body=body)
