"""Calls that wait for their replies, matched by id, on any carrier."""

import asyncio
from collections.abc import Callable

from holdfast import limits
from holdfast.errors import DeadlineExceededError, HoldfastError, InvalidArgumentError
from holdfast.proto import holdfast_pb2 as pb

Send = Callable[[pb.Call], None]

#: Leaves space for the envelope: a message that is too long would end the conversation, with all its calls.
_BODY_BYTES_MAX = limits.MESSAGE_BYTES_MAX - 1_024


class PendingCalls:
    """The ids, futures and deadlines of one conversation."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._futures: dict[int, asyncio.Future[pb.Reply]] = {}
        self._last_id = 0

    async def call(self, send: Send, method: str, body: bytes, deadline_s: float | None) -> pb.Reply:
        """Sends a call and waits for its reply; if the call is canceled or expires, a cancel is sent."""
        if len(body) > _BODY_BYTES_MAX:
            message = f"a request must have at most {_BODY_BYTES_MAX} bytes, got {len(body)}; split it"
            raise InvalidArgumentError(message, reason="REQUEST_TOO_LARGE")
        self._last_id = call_id = self._last_id + 1
        future: asyncio.Future[pb.Reply] = self._loop.create_future()
        self._futures[call_id] = future
        timer = None if deadline_s is None else self._loop.call_later(deadline_s, _expire, future, method)
        try:
            send(pb.Call(id=call_id, method=method, body=body))
            return await future
        finally:
            if timer is not None:
                timer.cancel()
            if self._futures.pop(call_id, None) is not None:  # no reply came
                send(pb.Call(id=call_id, cancel=True))

    def settle(self, reply: pb.Reply) -> None:
        """Passes a reply to the call that waits for it."""
        future = self._futures.pop(reply.id, None)
        if future is not None and not future.done():
            future.set_result(reply)

    def fail(self, error: HoldfastError) -> None:
        """Fails all waiting calls: no more replies will arrive."""
        futures, self._futures = self._futures, {}
        for future in futures.values():
            if not future.done():
                future.set_exception(error)


def _expire(future: asyncio.Future[pb.Reply], method: str) -> None:
    if not future.done():
        message = f"no response to {method} in time; whether it took effect is unknown"
        future.set_exception(DeadlineExceededError(message))
