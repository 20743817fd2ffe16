"""The exception tree, and the table that maps each error code to gRPC, HTTP and exit codes.

Operating errors (bad input, disk, network) are raised as one of these exceptions. A refusal that is part of the job
model is a value that the core returns; it has one of the same codes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import ClassVar


class Code(Enum):
    """The kind of an error; determines how every interface reports it."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_FOUND = "NOT_FOUND"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    UNAVAILABLE = "UNAVAILABLE"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    ABORTED = "ABORTED"
    INTERNAL = "INTERNAL"


class ExitCode(IntEnum):
    """Exit codes of the `holdfast` program."""

    DONE = 0
    JOB_FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    UNKNOWN = 5


@dataclass(frozen=True, slots=True)
class ErrorMapping:
    """One row of the table."""

    grpc_status: int
    http_status: int
    exit_code: ExitCode
    retryable: bool


# grpc_status is the number on the wire, so that this module needs no grpc.
MAPPED: Mapping[Code, ErrorMapping] = MappingProxyType(
    {
        Code.INVALID_ARGUMENT: ErrorMapping(3, 400, ExitCode.USAGE, retryable=False),
        Code.DEADLINE_EXCEEDED: ErrorMapping(4, 504, ExitCode.UNREACHABLE, retryable=True),
        Code.NOT_FOUND: ErrorMapping(5, 404, ExitCode.REFUSED, retryable=False),
        Code.PERMISSION_DENIED: ErrorMapping(7, 403, ExitCode.REFUSED, retryable=False),
        Code.RESOURCE_EXHAUSTED: ErrorMapping(8, 429, ExitCode.REFUSED, retryable=True),
        # 422 rather than 412: the only public cause is a request id that is reused for another payload.
        Code.FAILED_PRECONDITION: ErrorMapping(9, 422, ExitCode.REFUSED, retryable=False),
        Code.ABORTED: ErrorMapping(10, 409, ExitCode.REFUSED, retryable=False),
        Code.UNIMPLEMENTED: ErrorMapping(12, 501, ExitCode.REFUSED, retryable=False),
        Code.INTERNAL: ErrorMapping(13, 500, ExitCode.REFUSED, retryable=False),
        Code.UNAVAILABLE: ErrorMapping(14, 503, ExitCode.UNREACHABLE, retryable=True),
        Code.UNAUTHENTICATED: ErrorMapping(16, 401, ExitCode.REFUSED, retryable=False),
    }
)


class HoldfastError(Exception):
    """Base class of the errors that Holdfast raises."""

    code: ClassVar[Code] = Code.INTERNAL
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, reason: str = "", details: Mapping[str, str] | None = None) -> None:
        """`reason` is an UPPER_SNAKE identifier for programs; it defaults to the name of the code."""
        super().__init__(message)
        self.message = message
        self.reason = reason or self.code.value
        self.details = dict(details or {})

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.retryable = MAPPED[cls.code].retryable


class InvalidArgumentError(HoldfastError):
    """The request is invalid; a retry without changes fails again."""

    code = Code.INVALID_ARGUMENT


class NotFoundError(HoldfastError):
    """The requested object does not exist, or is no longer kept."""

    code = Code.NOT_FOUND


class FailedPreconditionError(HoldfastError):
    """The request conflicts with the current state."""

    code = Code.FAILED_PRECONDITION


class ResourceExhaustedError(HoldfastError):
    """A limit is reached; a later retry may succeed."""

    code = Code.RESOURCE_EXHAUSTED


class UnavailableError(HoldfastError):
    """The server cannot be reached or cannot answer at the moment."""

    code = Code.UNAVAILABLE


class DeadlineExceededError(HoldfastError):
    """No response arrived in time; it is unknown whether the request took effect."""

    code = Code.DEADLINE_EXCEEDED


class UnauthenticatedError(HoldfastError):
    """The caller sent no valid credentials."""

    code = Code.UNAUTHENTICATED


class PermissionDeniedError(HoldfastError):
    """The caller is authenticated but lacks the permission for this request."""

    code = Code.PERMISSION_DENIED


class UnimplementedError(HoldfastError):
    """The backend lacks the requested capability."""

    code = Code.UNIMPLEMENTED


class AbortedError(HoldfastError):
    """A concurrent request was faster, or is still in progress."""

    code = Code.ABORTED


class InternalError(HoldfastError):
    """An unexpected internal error."""

    code = Code.INTERNAL


#: Errors after which a worker does not open another session with the same server.
FINAL = (AbortedError, InvalidArgumentError, UnauthenticatedError, PermissionDeniedError, UnimplementedError)

_ERRORS: Mapping[Code, type[HoldfastError]] = MappingProxyType(
    {
        error.code: error
        for error in (
            InvalidArgumentError,
            NotFoundError,
            FailedPreconditionError,
            ResourceExhaustedError,
            UnavailableError,
            DeadlineExceededError,
            UnauthenticatedError,
            PermissionDeniedError,
            UnimplementedError,
            AbortedError,
            InternalError,
        )
    }
)
_CODES_BY_GRPC: Mapping[int, Code] = MappingProxyType({row.grpc_status: code for code, row in MAPPED.items()})


def error_class(code: Code) -> type[HoldfastError]:
    return _ERRORS[code]


def code_of_grpc(status: int) -> Code:
    """Returns the code of a gRPC status number; INTERNAL for a status that Holdfast never sends."""
    return _CODES_BY_GRPC.get(status, Code.INTERNAL)
