"""Counts the messages that a server receives and sends, by method, for the lab; enabled by `LAB_COUNT_MESSAGES`.

A message is counted when it is decoded or encoded, so every message of a stream counts. The counts are written as one
line of JSON to standard error when the process exits normally.
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
    """Counts the messages of all handlers of one server."""

    def __init__(self) -> None:
        self.received: dict[str, int] = {}
        self.sent: dict[str, int] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:  # noqa: ANN401 - a handler; grpc's type of it is generic only in its stubs
        """Returns the handler of a method, with counters around its messages."""
        # Not cached: the guard returns a separate handler for each call.
        return self._counted(handler_call_details.method, await continuation(handler_call_details))

    def _counted(self, method: str, handler: Any) -> Any:  # noqa: ANN401 - a named tuple that grpc does not type
        return handler and handler._replace(
            request_deserializer=_counting(method, self.received, handler.request_deserializer),
            response_serializer=_counting(method, self.sent, handler.response_serializer),
        )

    def line(self) -> str:
        """Returns the counts so far, as one line of JSON."""
        return json.dumps({"event": EVENT, "pid": os.getpid(), "received": self.received, "sent": self.sent})

    def tell(self) -> None:
        """Writes the line with one system call, because several processes may share standard error."""
        os.write(2, f"{self.line()}\n".encode())


def counters() -> Sequence[MessageCounter]:
    """Returns the interceptors for a server: none, unless counting is enabled."""
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
