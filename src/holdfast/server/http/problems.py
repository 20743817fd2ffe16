"""Errors as `application/problem+json` (RFC 9457), made from the one table of codes."""

from http import HTTPStatus

import msgspec

from holdfast.errors import MAPPED, Code, HoldfastError, InvalidArgumentError

PROBLEM_TYPE = b"application/problem+json"
#: Default of Retry-After: most limits and restarts pass within seconds.
RETRY_AFTER_S = 1


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """The error of a request: `reason` is for programs, `detail` for people."""

    title: str
    status: int
    reason: str
    detail: str
    code: str
    retryable: bool = False
    type: str = "about:blank"
    details: dict[str, str] = {}


class HttpError(InvalidArgumentError):
    """A refusal that exists only over HTTP, with its HTTP status."""

    def __init__(
        self, status: HTTPStatus, message: str, *, reason: str = "", headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message, reason=reason or status.name)
        self.status = status
        self.headers = headers or {}


def status_of(error: HoldfastError) -> int:
    """Returns the HTTP status of an error."""
    return error.status.value if isinstance(error, HttpError) else MAPPED[error.code].http_status


def problem_of(error: HoldfastError) -> Problem:
    """Converts an error to a problem."""
    status = status_of(error)
    return Problem(
        HTTPStatus(status).phrase,
        status,
        error.reason,
        error.message,
        error.code.value,
        MAPPED[error.code].retryable,
        details=error.details,
    )


def headers_of(error: HoldfastError) -> dict[str, str]:
    """Returns the additional headers of an error response."""
    headers = dict(error.headers) if isinstance(error, HttpError) else {}
    if error.code in {Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE}:
        headers["retry-after"] = error.details.get("retry_after_s", str(RETRY_AFTER_S))
    if error.code is Code.UNAUTHENTICATED:
        headers["www-authenticate"] = 'Bearer realm="holdfast"'
    return headers
