"""Messages that a server received and sent, by method: for the lab, and only where `LAB_COUNT_MESSAGES` is set.

A message is counted when it is decoded or encoded, so that one call of a stream with many messages counts as many.
What was counted is one line of JSON on standard error when the process ends in good order.
"""

import atexit
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc

VARIABLE = "LAB_COUNT_MESSAGES"
EVENT = "messages_counted"


class MessageCounter(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # not generic at run time
    """Counts what passes through the handlers of one server."""

    def __init__(self) -> None:
        self.received: dict[str, int] = {}
        self.sent: dict[str, int] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:  # noqa: ANN401 - a handler; grpc's type of it is generic only in its stubs
        """The handler of a method, with counters around its messages."""
        # Each call has a handler of its own: the guard gives it one for its caller.
        return self._counted(handler_call_details.method, await continuation(handler_call_details))

    def _counted(self, method: str, handler: Any) -> Any:  # noqa: ANN401 - a named tuple that grpc does not type
        return handler and handler._replace(
            request_deserializer=_counting(method, self.received, handler.request_deserializer),
            response_serializer=_counting(method, self.sent, handler.response_serializer),
        )

    def line(self) -> str:
        """What was counted until now."""
        return json.dumps({"event": EVENT, "pid": os.getpid(), "received": self.received, "sent": self.sent})

    def tell(self) -> None:
        """The line, in one piece: several processes may share a standard error."""
        os.write(2, f"{self.line()}\n".encode())


def counters() -> Sequence[MessageCounter]:
    """The interceptors for a server: none, unless somebody wants to count."""
    if not os.environ.get(VARIABLE):
        return ()
    counter = MessageCounter()
    atexit.register(counter.tell)
    return (counter,)


def _counting(method: str, counts: dict[str, int], convert: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    counts.setdefault(method, 0)

    def counted(message: Any) -> Any:  # noqa: ANN401 - bytes on one side, a message on the other
        counts[method] += 1
        return convert(message) if convert else message

    return counted
