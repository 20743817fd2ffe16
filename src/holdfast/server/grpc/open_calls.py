"""Calls without a token: few of them at a time may receive their request, and only for a limited time.

Invariant: at most `OPEN_REQUESTS_MAX` requests of such calls are being received into memory. A further call evicts the
one that has waited longest for its client, so that a probe always gets through.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

import grpc

from holdfast import limits
from holdfast.errors import HoldfastError, ResourceExhaustedError
from holdfast.server.grpc.request_decoder import tolerant
from holdfast.server.grpc.status import Context, refuse, refuse_undecodable

Behaviour = Callable[..., Awaitable[Any]]


class OpenCalls:
    """The calls without a token of one server."""

    def __init__(self) -> None:
        #: Calls that are receiving their request, oldest first; rescheduling the timeout to now ends a call.
        self._receiving: dict[asyncio.Timeout, None] = {}
        self._streams = 0

    def bounded(self, handler: Any) -> Any:  # noqa: ANN401 - a named tuple that grpc does not type
        """Returns the handler of a method with one request, which receives that request within the limits."""
        is_stream = handler.unary_unary is None
        behave = handler.unary_stream if is_stream else _responding(handler.unary_unary)
        run = written(behave) if inspect.isasyncgenfunction(behave) else behave
        name = getattr(handler.unary_stream or handler.unary_unary, "__name__", "")

        async def served(_: object, context: Context) -> None:
            try:
                request = await self._received(context)
                refuse_undecodable(request)
                if is_stream:
                    await self._streamed(run, request, context)
                else:
                    await run(request, context)
            except HoldfastError as error:
                await refuse(context, error, name)

        return grpc.stream_stream_rpc_method_handler(
            served, tolerant(handler.request_deserializer), handler.response_serializer
        )

    async def _received(self, context: Context) -> object:
        if len(self._receiving) >= limits.OPEN_REQUESTS_MAX:
            oldest = next(iter(self._receiving))
            del self._receiving[oldest]
            oldest.reschedule(0)
        try:
            async with asyncio.timeout(limits.OPEN_REQUEST_MS_MAX / 1_000) as timeout:
                self._receiving[timeout] = None
                try:
                    return await context.read()
                finally:
                    self._receiving.pop(timeout, None)
        except TimeoutError:
            message = "the request did not arrive in time, or newer requests without a token replaced it; try again"
            raise ResourceExhaustedError(message, reason="REQUEST_TOO_SLOW") from None

    async def _streamed(self, run: Behaviour, request: object, context: Context) -> None:
        if self._streams >= limits.OPEN_STREAMS_MAX:
            message = f"there are {self._streams} streams without a token already; try again later"
            raise ResourceExhaustedError(message, reason="TOO_MANY_STREAMS")
        self._streams += 1
        try:
            await run(request, context)
        finally:
            self._streams -= 1


class OpenServer:
    """Stands in for a server in generated registration code: its handlers need no token."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server
        self._calls = OpenCalls()

    def add_generic_rpc_handlers(self, _: object) -> None:
        """Ignores the handlers: they are also registered by name."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Registers the methods of one service."""
        changed = {name: self._calls.bounded(handler) for name, handler in handlers.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, changed),))


def written(behave: Callable[..., Any]) -> Behaviour:
    """Converts a handler that yields messages to one that writes them."""

    async def behaving(request: object, context: Context) -> None:
        async with aclosing(behave(request, context)) as messages:
            async for message in messages:
                await context.write(message)

    return behaving


def _responding(behave: Behaviour) -> Behaviour:
    """Converts a handler that returns its response to one that writes it."""

    async def behaving(request: object, context: Context) -> None:
        await context.write(await behave(request, context))

    return behaving
