"""The refusal of every call of gRPC during a start."""

from typing import Any

import grpc

from holdfast.server.grpc.status import Context, refuse
from holdfast.server.startup import Startup

_METHOD_CHARS_MAX = 200


class StartingMethods(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # not generic at run time
    """Refuses every method with UNAVAILABLE until the start is over, before the request is read.

    It is registered before all services except health.
    """

    def __init__(self, startup: Startup) -> None:
        self._startup = startup

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:  # noqa: ANN401 - grpc has no type
        """Returns a handler that refuses, whatever the arity of the call; None once the start is over."""
        if self._startup.is_over:
            return None
        method = handler_call_details.method[:_METHOD_CHARS_MAX]

        async def handler(_: object, context: Context) -> None:
            await refuse(context, self._startup.error(), method)

        return grpc.stream_stream_rpc_method_handler(handler)
