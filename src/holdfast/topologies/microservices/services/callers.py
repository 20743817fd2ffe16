"""The caller matrix: one table of roles and methods, checked before a request is decoded.

A caller sends a bearer token; a service knows only hashes of the tokens, by role. A missing or unknown token is
UNAUTHENTICATED; a role without the right is PERMISSION_DENIED. A method that is not in the table cannot be called.
Health checks need no token.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import grpc
from grpc_health.v1 import health

from holdfast.errors import HoldfastError, PermissionDeniedError, UnauthenticatedError
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.server.auth.service_tokens import ServiceTokens
from holdfast.server.grpc.status import Context, refuse

METADATA_KEY = "authorization"
_SCHEME = "bearer "
_METHOD_CHARS_MAX = 200

Handler = Callable[[Any, Context], Awaitable[Any]]


def _path(service: str, method: str) -> str:
    return f"/{pb.DESCRIPTOR.services_by_name[service].full_name}/{method}"


def _of(service: str, *methods: str) -> frozenset[str]:
    return frozenset(_path(service, method) for method in methods)


#: The methods that each role may call.
RIGHTS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "gateway": _of(
            "JobInternalService",
            "CreateJob",
            "DeleteJobIfStatus",
            "GetJobRecord",
            "ListJobRecords",
            "SetCancelRequested",
            "TransitionJobStatus",
        )
        | _of("QueueInternalService", "EnqueueJob", "RemoveJobIfPresent")
        | _of("ResultInternalService", "GetResult", "StoreResult"),
        "coordinator": _of("JobInternalService", "GetJobRecord", "ListJobRecords", "TransitionJobStatus")
        | _of("QueueInternalService", "DequeueJob", "EnqueueJob", "RemoveJobIfPresent")
        | _of("ResultInternalService", "StoreResult"),
        "worker": _of("CoordinatorInternalService", "FetchWork", "ReportWorkOutcome", "WorkerHeartbeat"),
    }
)


def _is_queued_cancel(request: pb.TransitionJobStatusRequest) -> bool:
    return (request.expected_from_status, request.to_status) == (public_pb.QUEUED, public_pb.CANCELED)


def _is_canceled_envelope(request: pb.StoreResultRequest) -> bool:
    return bool(request.terminal_status == public_pb.CANCELED)


#: Rights that depend on the request: its type, the condition, and its description.
_CONDITIONS: Mapping[tuple[str, str], tuple[type, Callable[[Any], bool], str]] = MappingProxyType(
    {
        ("gateway", _path("JobInternalService", "TransitionJobStatus")): (
            pb.TransitionJobStatusRequest,
            _is_queued_cancel,
            "moves jobs from QUEUED to CANCELED only",
        ),
        ("gateway", _path("ResultInternalService", "StoreResult")): (
            pb.StoreResultRequest,
            _is_canceled_envelope,
            "stores envelopes of CANCELED jobs only",
        ),
    }
)


def credential(token: str) -> tuple[tuple[str, str], ...]:
    """Returns the metadata of a call with this token; empty without a token."""
    return ((METADATA_KEY, f"Bearer {token}"),) if token else ()


class CallerInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # not generic at run time
    """Refuses calls without the right. It would refuse every call without hashes; such a service does not use it."""

    def __init__(self, hashes: Mapping[str, Sequence[str]]) -> None:
        """`hashes` are the hashes of each role's tokens."""
        self._tokens = ServiceTokens(hashes)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:  # noqa: ANN401 - grpc has no type
        """Returns the handler, if the caller may call it; else a handler that refuses."""
        method = handler_call_details.method
        if method.startswith(f"/{health.SERVICE_NAME}/"):
            return await continuation(handler_call_details)
        try:
            role = self.role_of(handler_call_details.invocation_metadata)
            check_right(role, method)
        except HoldfastError as error:
            return _refusing(error, method)
        return _conditional(await continuation(handler_call_details), role, method)

    def role_of(self, metadata: Any) -> str:  # noqa: ANN401 - pairs; grpc's own types differ between versions
        """Returns the role of the call's token; `UnauthenticatedError` if there is no known token."""
        shown = [value for key, value in metadata or () if key == METADATA_KEY]
        if len(shown) != 1 or not isinstance(shown[0], str) or not shown[0].lower().startswith(_SCHEME):
            raise UnauthenticatedError("expected one bearer token, got none", reason="TOKEN_MISSING")
        return self._tokens.role_of(shown[0][len(_SCHEME) :])


def check_right(role: str, method: str) -> None:
    """`PermissionDeniedError` if the role may not call the method at all."""
    if method not in RIGHTS.get(role, ()):
        raise _denied(role, f"may not call {method[:_METHOD_CHARS_MAX]}")


def _denied(role: str, what: str) -> PermissionDeniedError:
    return PermissionDeniedError(f"the {role} {what}", reason="CALLER_NOT_ALLOWED", details={"caller": role})


def _refusing(error: HoldfastError, method: str) -> Any:  # noqa: ANN401 - grpc has no type
    """Returns a handler that refuses without reading, whatever the arity of the call."""

    async def handler(_: object, context: Context) -> None:
        await refuse(context, error, method.rpartition("/")[2][:_METHOD_CHARS_MAX])

    return grpc.stream_stream_rpc_method_handler(handler)


def _conditional(handler: Any, role: str, method: str) -> Any:  # noqa: ANN401 - grpc has no type
    """Returns a handler that checks the request first, if the right depends on it."""
    condition = _CONDITIONS.get((role, method))
    if condition is None or getattr(handler, "unary_unary", None) is None:
        return handler
    kind, is_allowed, words = condition
    go_on: Handler = handler.unary_unary

    async def checked(request: object, context: Context) -> object:
        # The handler itself refuses a request that could not be decoded.
        if isinstance(request, kind) and not is_allowed(request):
            await refuse(context, _denied(role, words), method.rpartition("/")[2], getattr(request, "job_id", ""))
        return await go_on(request, context)

    return handler._replace(unary_unary=checked)
