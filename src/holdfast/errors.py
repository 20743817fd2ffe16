"""The one exception tree, and the one table of what each code means to gRPC, to HTTP and to the shell.

An operating error (bad input, disk, network) is raised as one of these. A refusal that is part of the job
model is a value which the core returns; it names one of the same codes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import ClassVar


class Code(Enum):
    """What kind of error it is; decides how every interface reports it."""

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
    """What the `holdfast` program tells the shell."""

    DONE = 0
    JOB_FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    UNKNOWN = 5


@dataclass(frozen=True, slots=True)
class Mapped:
    """One row of the table."""

    grpc_status: int
    http_status: int
    exit_code: ExitCode
    retryable: bool


# grpc_status is the number on the wire, so that this module needs no grpc.
MAPPED: Mapping[Code, Mapped] = MappingProxyType(
    {
        Code.INVALID_ARGUMENT: Mapped(3, 400, ExitCode.USAGE, retryable=False),
        Code.DEADLINE_EXCEEDED: Mapped(4, 504, ExitCode.UNREACHABLE, retryable=True),
        Code.NOT_FOUND: Mapped(5, 404, ExitCode.REFUSED, retryable=False),
        Code.PERMISSION_DENIED: Mapped(7, 403, ExitCode.REFUSED, retryable=False),
        Code.RESOURCE_EXHAUSTED: Mapped(8, 429, ExitCode.REFUSED, retryable=True),
        # 422 rather than 412: its one public cause is a request id reused for another payload.
        Code.FAILED_PRECONDITION: Mapped(9, 422, ExitCode.REFUSED, retryable=False),
        Code.ABORTED: Mapped(10, 409, ExitCode.REFUSED, retryable=False),
        Code.UNIMPLEMENTED: Mapped(12, 501, ExitCode.REFUSED, retryable=False),
        Code.INTERNAL: Mapped(13, 500, ExitCode.REFUSED, retryable=False),
        Code.UNAVAILABLE: Mapped(14, 503, ExitCode.UNREACHABLE, retryable=True),
        Code.UNAUTHENTICATED: Mapped(16, 401, ExitCode.REFUSED, retryable=False),
    }
)


class HoldfastError(Exception):
    """Every error that Holdfast raises on purpose."""

    code: ClassVar[Code] = Code.INTERNAL
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, reason: str = "", details: Mapping[str, str] | None = None) -> None:
        """`reason` is UPPER_SNAKE and for programs; it defaults to the code's name."""
        super().__init__(message)
        self.message = message
        self.reason = reason or self.code.value
        self.details = dict(details or {})

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.retryable = MAPPED[cls.code].retryable


class InvalidArgumentError(HoldfastError):
    """The request itself is wrong; repeating it unchanged cannot help."""

    code = Code.INVALID_ARGUMENT


class NotFoundError(HoldfastError):
    """What the request names does not exist, or is no longer kept."""

    code = Code.NOT_FOUND


class FailedPreconditionError(HoldfastError):
    """The request contradicts what was accepted before it."""

    code = Code.FAILED_PRECONDITION


class ResourceExhaustedError(HoldfastError):
    """A limit is reached; it may pass."""

    code = Code.RESOURCE_EXHAUSTED


class UnavailableError(HoldfastError):
    """Whoever should answer cannot, for now."""

    code = Code.UNAVAILABLE


class DeadlineExceededError(HoldfastError):
    """No answer in time; whether the request took effect is unknown."""

    code = Code.DEADLINE_EXCEEDED


class UnauthenticatedError(HoldfastError):
    """The caller did not prove who it is."""

    code = Code.UNAUTHENTICATED


class PermissionDeniedError(HoldfastError):
    """The caller is known and may not do this."""

    code = Code.PERMISSION_DENIED


class UnimplementedError(HoldfastError):
    """The backend does not have the capability asked for."""

    code = Code.UNIMPLEMENTED


class AbortedError(HoldfastError):
    """Another request got there first, or is still under way."""

    code = Code.ABORTED


class InternalError(HoldfastError):
    """Something that should not happen did."""

    code = Code.INTERNAL


#: What no other session with the same server can mend, as a worker sees it.
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
    """The code of a gRPC status number; INTERNAL for one that Holdfast never sends."""
    return _CODES_BY_GRPC.get(status, Code.INTERNAL)
