"""Authorization of every gRPC call, before its request is read.

Deny by default: a method that declares no right cannot be registered. The headers of a call decide whether its body is
received at all: a refused call gets a handler that never reads, so that its body stays with the client. The right of a
stream is checked again while it lasts: revoking its token ends it.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, cast

import grpc
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection

from holdfast.errors import HoldfastError, UnauthenticatedError
from holdfast.proto import holdfast_pb2, taskqueue_internal_pb2, taskqueue_public_pb2
from holdfast.server.auth.permissions import Caller, Guard, OpenAccess, Right, Scope
from holdfast.server.grpc.method_table import Table
from holdfast.server.grpc.open_calls import OpenCalls, written
from holdfast.server.grpc.request_decoder import tolerant
from holdfast.server.grpc.status import Context, refuse

METADATA_KEY = "authorization"
_SCHEME = "bearer "
_METHOD_CHARS_MAX = 200
#: When a right ends: the time for the client to read the message that is being written.
_LAST_WORD_S = 2.0
Behaviour = Callable[..., Awaitable[Any]]


def rights(table: Table) -> dict[str, Right]:
    """Returns the right that each method needs, by its path."""
    package = holdfast_pb2.DESCRIPTOR.package
    public = taskqueue_public_pb2.DESCRIPTOR.services_by_name["TaskQueuePublicService"].full_name
    workers = taskqueue_internal_pb2.DESCRIPTOR.services_by_name["CoordinatorInternalService"].full_name
    return {
        **{f"/{package}.{path}": method.scope for path, method in table.items()},
        f"/{package}.JobService/Converse": OpenAccess.CALLERS,
        f"/{package}.WorkService/Work": Scope.WORK,
        f"/{package}.WireService/GetPort": OpenAccess.PUBLIC,
        f"/{public}/SubmitJob": Scope.SUBMIT,
        f"/{public}/GetJobStatus": Scope.READ,
        f"/{public}/GetJobResult": Scope.READ,
        f"/{public}/CancelJob": Scope.SUBMIT,
        f"/{public}/ListJobs": Scope.READ,
        f"/{workers}/WorkerHeartbeat": Scope.WORK,
        f"/{workers}/FetchWork": Scope.WORK,
        f"/{workers}/ReportWorkOutcome": Scope.WORK,
        f"/{health.SERVICE_NAME}/Check": OpenAccess.PUBLIC,
        f"/{health.SERVICE_NAME}/Watch": OpenAccess.PUBLIC,
        f"/{health.SERVICE_NAME}/List": OpenAccess.PUBLIC,
        f"/{reflection.SERVICE_NAME}/ServerReflectionInfo": Scope.READ,
    }


class GuardedServer:
    """Stands in for a server in generated registration code: every handler checks the guard, then reads."""

    def __init__(self, server: grpc.aio.Server, guard: Guard, known: Mapping[str, Right]) -> None:
        self._server = server
        self._guard = guard
        self._rights = known
        self._open_calls = OpenCalls()

    def add_generic_rpc_handlers(self, _: object) -> None:
        """Ignores the handlers: they are also registered by name."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Registers the methods of one service; `TypeError` for one that declares no right."""
        guarded = {f"/{service}/{name}": handler for name, handler in handlers.items()}
        methods = {path: self._guarded(path, handler) for path, handler in guarded.items()}
        self._server.add_generic_rpc_handlers((_GuardedMethods(self._guard, methods),))

    def add_last(self, handlers: grpc.GenericRpcHandler) -> None:  # type: ignore[type-arg]  # not generic at run time
        """Adds handlers that refuse every call; callers without a valid token get UNAUTHENTICATED instead."""
        self._server.add_generic_rpc_handlers((_AdmittedHandlers(handlers, self._guard),))

    def _guarded(self, path: str, handler: Any) -> "_Method":  # noqa: ANN401 - a named tuple that grpc does not type
        right = self._rights.get(path)
        if right is None:
            raise TypeError(f"{path} names no scope")
        refusing = _refusing(self._guard, path.rpartition("/")[2], right)
        if right is OpenAccess.PUBLIC:
            return _Method(right, _same(self._open_calls.bounded(handler)), refusing)
        if handler.unary_unary is not None:
            assert isinstance(right, Scope), path
            return _Method(right, _unary(self._guard, handler, right), refusing)
        return _Method(right, _same(_staying(self._guard, handler, right)), refusing)


class _Method(NamedTuple):
    """One method: its right, a factory for the handler of a recognised caller, and a handler that only refuses."""

    right: Right
    serving: Callable[[Caller | None, str], Any]
    refusing: Any


class _GuardedMethods(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # not generic at run time
    """The methods of one service; the headers of a call decide on its handler."""

    def __init__(self, guard: Guard, methods: Mapping[str, _Method]) -> None:
        self._guard = guard
        self._methods = methods

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:  # noqa: ANN401 - grpc has no type
        """Returns the handler of a call; one that never reads the request if the headers are not sufficient."""
        method = self._methods.get(handler_call_details.method)
        if method is None:
            return None
        try:
            token = _shown(handler_call_details.invocation_metadata)
            return method.serving(self._guard.recognise(token, method.right), token)
        except HoldfastError:
            return method.refusing


def _refusing(guard: Guard, name: str, right: Right) -> Any:  # noqa: ANN401 - grpc has no type
    """Returns a handler that refuses without reading, whatever the arity of the call."""

    async def refused(_: object, context: Context) -> None:
        try:
            guard.enter(token_of(context), context.peer(), right, lambda _: None).leave()
        except HoldfastError as error:
            await refuse(context, error, name)
        # The token became valid after the headers were checked.
        late = UnauthenticatedError("the token was unknown when the call began; try again", reason="TOKEN_UNKNOWN")
        await refuse(context, late, name)

    return grpc.stream_stream_rpc_method_handler(refused)


def _same(handler: Any) -> Callable[[Caller | None, str], Any]:  # noqa: ANN401 - as above
    """Uses one handler for all callers."""
    return lambda _, __: handler


def _unary(guard: Guard, handler: Any, scope: Scope) -> Callable[[Caller | None, str], Any]:  # noqa: ANN401 - as above
    """Admits a caller for one call: its handler decodes the request only after the call is counted."""
    behave, decode, name = handler.unary_unary, tolerant(handler.request_deserializer), handler.unary_unary.__name__
    raw = handler._replace(request_deserializer=None)

    def serving(caller: Caller | None, token: str) -> Any:  # noqa: ANN401 - as above
        async def guarded(data: bytes, context: Context) -> object:
            try:
                guard.charge(caller, token, context.peer(), scope)
            except HoldfastError as error:
                await refuse(context, error, name)
            return await behave(decode(data), context)

        return raw._replace(unary_unary=guarded)

    return serving


def _staying(guard: Guard, handler: Any, right: Right) -> Any:  # noqa: ANN401 - as above
    """Admits a caller for as long as its right lasts; a conversation also gets the session, to check its calls."""
    decode = tolerant(handler.request_deserializer)
    if handler.stream_stream is not None:
        lasting = _lasting(guard, handler.stream_stream, right, None)
        # A generator is a handler of grpcio (reflection), which cannot handle `Undecodable`.
        its_own = inspect.isasyncgenfunction(handler.stream_stream)
        read = handler.request_deserializer if its_own else decode
        return handler._replace(request_deserializer=read, stream_stream=lasting)
    lasting = _lasting(guard, handler.unary_stream, right, decode)
    return handler._replace(request_deserializer=None, unary_stream=lasting)


def _lasting(guard: Guard, behave: Behaviour, right: Right, decode: Callable[[bytes], object] | None) -> Behaviour:
    run = written(behave) if inspect.isasyncgenfunction(behave) else behave
    name = getattr(behave, "__name__", "")

    async def guarded(request: Any, context: Context) -> None:  # noqa: ANN401 - bytes, or a stream
        lost: list[HoldfastError] = []
        task = asyncio.current_task()
        assert task is not None
        line = _WriteSafeContext(context, task.cancel)

        def end(error: HoldfastError) -> None:
            lost.append(error)
            line.end()

        try:
            session = guard.enter(token_of(context), context.peer(), right, end)
        except HoldfastError as error:
            await refuse(context, error, name)
        try:
            given = (decode(request) if decode is not None else request, cast("Context", line))
            await (run(*given, session) if right is OpenAccess.CALLERS else run(*given))
        except asyncio.CancelledError:
            if not lost:
                raise
            task.uncancel()
            await refuse(context, lost[0], name)
        finally:
            session.leave()

    return guarded


class _WriteSafeContext:
    """A context whose call is not canceled during a write: gRPC can send no status while it writes a message."""

    def __init__(self, context: Context, leave: Callable[[], object]) -> None:
        self._context = context
        self._leave = leave
        self._writing = 0
        self._is_ending = False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - everything else belongs to the context
        return getattr(self._context, name)

    async def write(self, message: object) -> None:
        """Sends a message; after `end`, waits for the cancellation instead."""
        if self._is_ending:
            await asyncio.get_running_loop().create_future()
        self._writing += 1
        try:
            await self._context.write(message)
        finally:
            self._writing -= 1
            if self._is_ending and not self._writing:
                self._leave()

    def end(self) -> None:
        """Cancels the call once no write is in progress, or after `_LAST_WORD_S` if the client does not read."""
        if self._is_ending:
            return
        self._is_ending = True
        if self._writing:
            asyncio.get_running_loop().call_later(_LAST_WORD_S, self._give_up)
        else:
            self._leave()

    def _give_up(self) -> None:
        if self._writing:
            self._leave()


def token_of(context: Context) -> str:
    """Returns the caller's token; empty if there is none, `UnauthenticatedError` if there are several."""
    return _shown(context.invocation_metadata())


def _shown(metadata: Any) -> str:  # noqa: ANN401 - pairs; grpc's own types differ between versions
    """Returns the token in the headers of a call; `UnauthenticatedError` if there are several."""
    shown = [value for key, value in metadata or () if key == METADATA_KEY]
    if len(shown) > 1:
        raise UnauthenticatedError(f"expected one token, got {len(shown)}", reason="TOKEN_AMBIGUOUS")
    if not shown or not isinstance(shown[0], str) or shown[0][: len(_SCHEME)].lower() != _SCHEME:
        return ""
    return shown[0][len(_SCHEME) :].strip()


class _AdmittedHandlers(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # not generic at run time
    """Handlers for callers with a valid token of any scope."""

    def __init__(self, handlers: grpc.GenericRpcHandler, guard: Guard) -> None:  # type: ignore[type-arg]
        self._handlers = handlers
        self._guard = guard

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:  # noqa: ANN401 - grpc has no type
        """Returns the handler, if there is one."""
        handler: Any = self._handlers.service(handler_call_details)
        if handler is None:
            return None
        behave, name = handler.stream_stream, handler_call_details.method[:_METHOD_CHARS_MAX]

        async def guarded(requests: object, context: Context) -> None:
            try:
                self._guard.enter(token_of(context), context.peer(), OpenAccess.CALLERS, lambda _: None).leave()
            except HoldfastError as error:
                await refuse(context, error, name)
            await behave(requests, context)

        return handler._replace(stream_stream=guarded)
