"""What gRPC would answer by itself, answered like everything else: with our status, and a line in the log.

Bytes that are no message would be UNKNOWN before any handler is called; they reach the handlers as
`Undecodable` instead. A method that does not exist is refused by a handler of its own.
"""

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from holdfast.errors import UnimplementedError
from holdfast.server.grpc.connections import ConnectionTable
from holdfast.server.grpc.status import Context, Undecodable, refuse


def tolerant(decode: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """Gives an `Undecodable` where `decode` raises."""

    def decoded(data: bytes) -> object:
        try:
            return decode(data)
        except DecodeError:
            return Undecodable(f"expected a message of this method, got {len(data)} bytes that are none")

    return decoded


class TolerantServer:
    """What the generated registration takes for a server: every handler it brings decodes tolerantly.

    A call that reaches one of them was let in: its connection stays.
    """

    def __init__(self, server: grpc.aio.Server, connections: ConnectionTable) -> None:
        self._server = server
        self._connections = connections

    def add_generic_rpc_handlers(self, _: object) -> None:
        """The same handlers come once more, by name."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Registers the methods of one service."""
        changed = {
            name: handler._replace(
                request_deserializer=tolerant(handler.request_deserializer),
                unary_unary=self._noting(handler.unary_unary),
            )
            for name, handler in handlers.items()
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, changed),))

    def _noting(self, behave: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        @functools.wraps(behave)
        async def noted(request: object, context: Context) -> object:
            self._connections.admit(context.peer())
            return await behave(request, context)

        return noted


class UnknownMethods(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # not generic at run time
    """Answers every method that nobody else does; to be registered last."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:  # noqa: ANN401 - grpc has no type
        """A handler that refuses, whatever the arity of the call."""
        method = handler_call_details.method

        async def handler(_: object, context: Context) -> None:
            error = UnimplementedError(f"there is no method {method[:200]!r} here", reason="METHOD_UNKNOWN")
            await refuse(context, error, method[:200])

        return grpc.stream_stream_rpc_method_handler(handler)
