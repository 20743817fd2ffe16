"""The services for clients over gRPC: a handler for each row of the table, and `Converse` for all of them."""

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, cast

import grpc
from google.protobuf.message import Message

from holdfast.core.trace_context import sent_context
from holdfast.errors import HoldfastError
from holdfast.proto import holdfast_pb2 as pb
from holdfast.server.auth.permissions import CallerSession
from holdfast.server.grpc.converse_stream import ConverseStream
from holdfast.server.grpc.method_table import CallMethod, Table
from holdfast.server.grpc.status import Context, refuse, refuse_undecodable
from holdfast.server.grpc.streams import Streams
from holdfast.server.refusal_log import hidden

_PACKAGE = pb.DESCRIPTOR.package


def _encoded(message: Message) -> bytes:
    return message.SerializeToString()


class CalledServices:
    """The gRPC services of the methods in the table."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._conversations = Streams("Converse")

    def handlers(self) -> dict[str, dict[str, Any]]:
        """Returns the handlers of each service, as gRPC expects them."""
        services: dict[str, dict[str, Any]] = {}
        for path, method in self._table.items():
            service = f"{_PACKAGE}.{path.split('/')[0]}"
            services.setdefault(service, {})[method.name] = self._handler(method)
        converse = grpc.stream_stream_rpc_method_handler(self._converse, pb.Call.FromString, _encoded)
        services[f"{_PACKAGE}.JobService"]["Converse"] = converse
        return services

    def stop(self) -> None:
        """Ends conversations once their calls in progress are answered."""
        self._conversations.stop()

    async def _converse(self, requests: object, context: Context, session: CallerSession) -> None:
        """Serves until the client ends the stream, the connection drops or the server stops; checks each call."""
        await self._conversations.serve(ConverseStream(self._table, context, session), context)

    def _handler(self, method: CallMethod) -> Any:  # noqa: ANN401 - grpc has no type
        decode = method.request.FromString
        if method.is_stream:
            return grpc.unary_stream_rpc_method_handler(self._streamed(method), decode, _encoded)
        return grpc.unary_unary_rpc_method_handler(self._answered(method), decode, _encoded)

    def _answered(self, method: CallMethod) -> Callable[[Any, Context], Any]:
        async def handler(request: object, context: Context) -> Message:
            response: list[Message] = []

            async def run() -> None:
                if method.carry is not None and (sent := sent_context(context.invocation_metadata() or ())):
                    method.carry(request, sent)
                response.append(await method.handler(request))

            await self._guarded(method, request, context, run)
            return response[0]

        return handler

    def _streamed(self, method: CallMethod) -> Callable[[Any, Context], Any]:
        async def handler(request: object, context: Context) -> None:
            async def run() -> None:
                messages = cast("AsyncIterator[Message]", method.handler(request))
                async with aclosing(cast("Any", messages)) as iterator:
                    async for message in iterator:
                        await context.write(message)

            await self._guarded(method, request, context, run)

        return handler

    async def _guarded(self, method: CallMethod, request: object, context: Context, run: Callable[[], Any]) -> None:
        """Maps errors to gRPC statuses; a bug becomes INTERNAL without its details."""
        job_id = getattr(request, "job_id", "")
        try:
            refuse_undecodable(request)
            await run()
        except HoldfastError as error:
            await refuse(context, error, method.name, job_id)
        except Exception as error:  # noqa: BLE001 - no request may stop the server
            await refuse(context, hidden(error, method.name), method.name, job_id)
