"""Refusals of requests that gRPC would reject itself, with Holdfast's status and a log line.

gRPC would reject bytes that cannot be decoded as UNKNOWN before it calls a handler; here they reach the handlers as
`Undecodable`. A separate handler refuses unknown methods.
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
    """Returns a decoder that returns an `Undecodable` where `decode` raises."""

    def decoded(data: bytes) -> object:
        try:
            return decode(data)
        except DecodeError:
            return Undecodable(
                f"expected a request message of this method, got {len(data)} bytes that cannot be decoded"
            )

    return decoded


class TolerantServer:
    """Stands in for a server in generated registration code: every handler decodes tolerantly.

    A call that reaches such a handler was admitted, so its connection is kept.
    """

    def __init__(self, server: grpc.aio.Server, connections: ConnectionTable) -> None:
        self._server = server
        self._connections = connections

    def add_generic_rpc_handlers(self, _: object) -> None:
        """Ignores the handlers: they are also registered by name."""

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
    """Refuses every unknown method; must be registered last."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:  # noqa: ANN401 - grpc has no type
        """Returns a handler that refuses, whatever the arity of the call."""
        method = handler_call_details.method

        async def handler(_: object, context: Context) -> None:
            error = UnimplementedError(f"this server has no method {method[:200]!r}", reason="METHOD_UNKNOWN")
            await refuse(context, error, method[:200])

        return grpc.stream_stream_rpc_method_handler(handler)
