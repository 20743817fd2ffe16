"""Errors as gRPC statuses, with `google.rpc.Status` and an `ErrorInfo` reason; each is logged."""

import functools
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from holdfast.errors import MAPPED, HoldfastError, InvalidArgumentError
from holdfast.server.refusal_log import hidden, log_refusal

DOMAIN = "holdfast"
DETAILS_KEY = "grpc-status-details-bin"

_CODES = {code.value[0]: code for code in grpc.StatusCode}

Request = TypeVar("Request")
Response = TypeVar("Response")
Context = grpc.aio.ServicerContext[Any, Any]


class Undecodable:
    """Stands for a request that could not be decoded."""

    def __init__(self, message: str) -> None:
        self.error = InvalidArgumentError(message, reason="MESSAGE_MALFORMED")


def refuse_undecodable(request: object) -> None:
    """Raises the error of a request that could not be decoded."""
    if isinstance(request, Undecodable):
        raise request.error


def answered(
    method: Callable[[Any, Request, Context], Awaitable[Response]],
) -> Callable[[Any, Request, Context], Awaitable[Response]]:
    """Maps the errors of a unary handler to gRPC statuses; a bug becomes INTERNAL without its details."""

    @functools.wraps(method)
    async def handler(self: Any, request: Request, context: Context) -> Response:  # noqa: ANN401 - any servicer
        try:
            refuse_undecodable(request)
            return await method(self, request, context)
        except HoldfastError as error:
            await refuse(context, error, method.__name__, getattr(request, "job_id", ""))
        except Exception as error:  # noqa: BLE001 - no request may stop the server
            await refuse(context, hidden(error, method.__name__), method.__name__, getattr(request, "job_id", ""))

    return handler


async def refuse(context: Context, error: HoldfastError, method: str, job_id: str = "") -> NoReturn:
    """Ends the call with the status of the error, and logs it."""
    code = _CODES[MAPPED[error.code].grpc_status]
    log_refusal(error, method, context.peer(), job_id)
    await context.abort(code, error.message, ((DETAILS_KEY, details(error)),))


def details(error: HoldfastError) -> bytes:
    """Encodes the error as `google.rpc.Status`."""
    info = AnyMessage()
    info.Pack(ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=error.details))
    status = Status(code=MAPPED[error.code].grpc_status, message=error.message, details=[info])
    return bytes(status.SerializeToString())
