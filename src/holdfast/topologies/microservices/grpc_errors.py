"""Conversion of gRPC errors into the exceptions that the server's own process would have raised."""

import contextlib
import re
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar, cast

import grpc
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from holdfast.errors import Code, HoldfastError, UnavailableError, code_of_grpc, error_class

T = TypeVar("T")

_DETAILS_KEY = "grpc-status-details-bin"
#: The details of the INTERNAL error that gRPC's client itself raises when a stream breaks during a write.
_BROKEN_WRITE = "Internal error from Core"


class FirstStatus:
    """The status with which a stream first ended.

    A write that fails after the server has ended the stream replaces the server's status with INTERNAL
    (https://github.com/grpc/grpc/issues/36066). The status is therefore stored at the moment when the stream ends.
    """

    def __init__(self, call: grpc.aio.Call) -> None:
        self._error: grpc.aio.AioRpcError | None = None
        call.add_done_callback(self._store)

    def _store(self, call: grpc.aio.Call) -> None:
        code = _result(call.code())
        if self._error is None and code is not grpc.StatusCode.OK:
            before, after = _result(call.initial_metadata()), _result(call.trailing_metadata())
            self._error = grpc.aio.AioRpcError(code, before, after, _result(call.details()), "")

    def of(self, error: grpc.aio.AioRpcError) -> grpc.aio.AioRpcError:
        """Returns the first status of the stream, or `error` if the stream has not ended."""
        return self._error or error


def _result(finished: Coroutine[Any, Any, T]) -> T:
    """Returns the result of a coroutine that has nothing to wait for."""
    try:
        finished.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    raise AssertionError("the call has no status yet")


def error_of(error: grpc.aio.AioRpcError) -> HoldfastError:
    """The error with its code, its message and, if the server sent one, its reason."""
    if error.code() is grpc.StatusCode.INTERNAL and error.details() == _BROKEN_WRITE:
        message = "the connection was lost while a request was sent; whether it took effect is unknown"
        return UnavailableError(message, reason="CONNECTION_LOST")
    code = code_of_grpc(error.code().value[0])
    message = error.details() or f"the server answered {error.code().name} without a message"
    return error_class(code)(message, reason=_reason(error))


def explained(error: grpc.aio.AioRpcError, target: str, advice: str = "") -> HoldfastError:
    """The server's own error, or, if no server answers, an error with advice instead of gRPC's text."""
    known = error_of(error)
    if not isinstance(known, UnavailableError) or known.reason != Code.UNAVAILABLE.value:
        return known
    if problem := tls_problem(error, target):
        return UnavailableError(problem, reason="TLS_FAILED")
    advice = advice or "start one with `holdfast up`, or use another address"
    return UnavailableError(f"no server answers at {target}: {advice}", reason="UNREACHABLE")


def _reason(error: grpc.aio.AioRpcError) -> str:
    metadata = cast("Iterable[tuple[str, bytes]]", error.trailing_metadata() or ())
    with contextlib.suppress(DecodeError):  # details that cannot be decoded contain no reason
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
    """Explains why TLS with the server at `target` failed; empty if TLS was not the problem."""
    words = error.details() or ""
    if untrusted := _UNTRUSTED.search(words):
        why = untrusted[1] or "it was issued for another name"
        return f"the certificate of the server at {target} is not trusted: {why}; set ?ca=FILE to its CA certificate"
    if _NO_TLS in words:
        return f"the server at {target} does not use TLS; use holdfast:// instead of holdfasts://"
    if _CLOSED.search(words):
        return (
            f"{target} closes new connections at once: the server may require TLS (holdfasts://),"
            " or a client certificate (?cert= and ?key=)"
        )
    return ""
