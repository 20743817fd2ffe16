"""What a server refused, as the exception that the server's own process would have raised."""

import contextlib
import re
from collections.abc import Iterable
from typing import cast

import grpc
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from holdfast.errors import Code, HoldfastError, UnavailableError, code_of_grpc, error_class

_DETAILS_KEY = "grpc-status-details-bin"
#: What gRPC's own client says, as if it were the server, when a stream breaks in the instant of a write.
_BROKEN_WRITE = "Internal error from Core"


def error_of(error: grpc.aio.AioRpcError) -> HoldfastError:
    """The error with its code, its sentence and, where the server gave one, its reason."""
    if error.code() is grpc.StatusCode.INTERNAL and error.details() == _BROKEN_WRITE:
        message = "the connection broke while something was sent; whether it arrived is not known"
        return UnavailableError(message, reason="CONNECTION_LOST")
    code = code_of_grpc(error.code().value[0])
    message = error.details() or f"the server answered {error.code().name} and said no more"
    return error_class(code)(message, reason=_reason(error))


def explained(error: grpc.aio.AioRpcError, target: str, advice: str = "") -> HoldfastError:
    """The server's own error; for a server that cannot be reached, a sentence with advice. gRPC's text is the cause."""
    known = error_of(error)
    if not isinstance(known, UnavailableError) or known.reason != Code.UNAVAILABLE.value:
        return known
    if problem := tls_problem(error, target):
        return UnavailableError(problem, reason="TLS_FAILED")
    advice = advice or "start one with `holdfast up`, or name another one"
    return UnavailableError(f"no server answers at {target}: {advice}", reason="UNREACHABLE")


def _reason(error: grpc.aio.AioRpcError) -> str:
    metadata = cast("Iterable[tuple[str, bytes]]", error.trailing_metadata() or ())
    with contextlib.suppress(DecodeError):  # who does not speak clearly has given none
        for key, value in metadata:
            if key == _DETAILS_KEY:
                for detail in Status.FromString(value).details:
                    info = ErrorInfo()
                    if detail.Unpack(info):
                        return str(info.reason)
    return ""


_UNTRUSTED = re.compile(r"CERTIFICATE_VERIFY_FAILED: ([^:]+)|(Hostname Verification Check failed)")
_NO_TLS = "WRONG_VERSION_NUMBER"
_CLOSED = re.compile(r"failed to connect to all addresses.*Socket closed")


def tls_problem(error: grpc.aio.AioRpcError, target: str) -> str:
    """Why nobody can be talked to at `target`, if it is for how that was tried; else nothing."""
    words = error.details() or ""
    if untrusted := _UNTRUSTED.search(words):
        why = untrusted[1] or "it is for another name"
        return f"the certificate of the server at {target} is not to be trusted: {why}; ?ca= names who signed it"
    if _NO_TLS in words:
        return f"the server at {target} speaks no TLS; say holdfast:// instead of holdfasts://"
    if _CLOSED.search(words):
        return (
            f"{target} closes connections as soon as they are made: a server there may want TLS (holdfasts://),"
            " or to see a certificate (?cert= and ?key=)"
        )
    return ""
