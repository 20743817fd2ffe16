"""Counts the gRPC messages that a server receives and sends, by method; see `message_counts`.

A message is counted when it is decoded or encoded, so every message of a stream counts.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc

from holdfast.server.message_counts import MessageCounts, message_counts


class MessageCounter(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # not generic at run time
    """Counts the messages of all handlers of one server."""

    def __init__(self, counts: MessageCounts) -> None:
        self._counts = counts

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
            request_deserializer=_counting(method, self._counts.received, handler.request_deserializer),
            response_serializer=_counting(method, self._counts.sent, handler.response_serializer),
        )


def counters() -> Sequence[MessageCounter]:
    """Returns the interceptors for a server: none, unless counting is enabled."""
    counts = message_counts()
    return () if counts is None else (MessageCounter(counts),)


def _counting(method: str, counts: dict[str, int], convert: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    counts.setdefault(method, 0)

    def counted(message: Any) -> Any:  # noqa: ANN401 - bytes on one side, a message on the other
        counts[method] += 1
        return convert(message) if convert else message

    return counted
