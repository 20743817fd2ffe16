"""One request, as far as it has arrived, and one response.

The head arrives first: method, path, query and headers. The body is kept only if the route has one, and never beyond
its limit.
"""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl

import msgspec

from holdfast import limits
from holdfast.errors import InvalidArgumentError
from holdfast.server.auth.permissions import Caller
from holdfast.server.http.problems import HttpError
from holdfast.server.http.strict_json import parse

if TYPE_CHECKING:
    from holdfast.server.http.routing import Route

Headers = list[tuple[bytes, bytes]]

JSON_TYPE = b"application/json"
TEXT_TYPE = b"text/plain; charset=utf-8"
METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
EVENT_STREAM = b"text/event-stream; charset=utf-8"
_ENCODER = msgspec.json.Encoder()
_QUERY_FIELDS_MAX = 100
#: A larger body is parsed in a thread: in the worst case it would delay other requests noticeably.
_INLINE_BYTES = 128 * 1024


class Head(msgspec.Struct, frozen=True):
    """The head of a request; names of headers are in lower case."""

    method: str
    #: As it was sent, without the query string.
    path: str
    headers: Headers
    peer: str
    is_secure: bool = False
    #: The query string.
    query: bytes = b""

    def header(self, name: bytes) -> str:
        """Returns the first header with this name; empty if there is none."""
        for known, value in self.headers:
            if known == name:
                return value.decode("latin-1")
        return ""


class ByteSink(Protocol):
    """A connection that bytes are written to."""

    def write(self, data: bytes) -> None:
        """Sends bytes, now or later."""
        ...

    def get_write_buffer_size(self) -> int:
        """Returns the number of unsent bytes."""
        ...

    def abort(self) -> None:
        """Closes the connection at once."""
        ...


class ResponseConnection(ByteSink, Protocol):
    """The connection of a client, for streamed responses."""

    def begin(self, headers: Headers) -> None:
        """Sends the head of a streamed response."""
        ...


class AdmittedRequest:
    """An admitted request."""

    __slots__ = ("body", "caller", "content", "head", "line", "over", "params", "query", "route")

    def __init__(self, head: Head, route: "Route", params: Mapping[str, str]) -> None:
        self.head = head
        self.route = route
        self.params = params
        self.query: Any = None
        #: The caller, if the route needs a scope.
        self.caller: Caller
        #: The whole body, once the request is complete, if the route has one.
        self.body = b""
        #: The decoded body.
        self.content: Any = None
        #: For streams: the connection, and an event that is set when the client disconnects or loses its permission.
        self.line: ResponseConnection
        self.over: asyncio.Event | None = None

    def read_query(self, kind: type[msgspec.Struct] | None) -> None:
        """Reads the filters; `InvalidArgumentError` names one that is unknown, repeated or invalid."""
        if kind is None and not self.head.query:
            return
        self.query = query_of(self.head.query, kind or NoFilters)

    async def read_json(self, kind: Any, *, is_optional: bool, by_name: Mapping[str, Any]) -> None:  # noqa: ANN401
        """Decodes the body as this type, or as one that a name in it selects; an error says what is wrong, and where.

        If the body is optional, a missing one means the defaults.
        """
        body = self.body
        if not body:
            if not is_optional:
                raise InvalidArgumentError("expected a JSON body, got none", reason="BODY_MISSING")
            self.content = kind()
            return
        self._check_type()
        value = parse(body) if len(body) <= _INLINE_BYTES else await asyncio.to_thread(parse, body)
        if by_name and isinstance(value, dict):
            kind = next((other for name, other in by_name.items() if name in value), kind)
        self.content = converted(value, kind)

    def check_length(self) -> None:
        """Raises `HttpError` if Content-Length exceeds the limit."""
        length = self.head.header(b"content-length")
        if len(length) > 12 or int(length or 0) > limits.MESSAGE_BYTES_MAX:  # noqa: PLR2004 - digits
            raise too_large()

    def _check_type(self) -> None:
        given = self.head.header(b"content-type")
        if given != "application/json":
            kind, _, parameters = given.partition(";")
            charset = parameters.strip().lower().removeprefix("charset=").strip('"')
            if kind.strip().lower() != "application/json" or charset not in {"", "utf-8"}:
                message = f"the content type must be application/json, got {given[:80]!r}"
                raise HttpError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)
        if self.head.header(b"content-encoding").lower() not in {"", "identity"}:
            message = "expected an uncompressed body"
            raise HttpError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message, reason="ENCODING_UNSUPPORTED")


class NoFilters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No filters."""


def converted(value: object, kind: Any) -> Any:  # noqa: ANN401 - any type that msgspec knows
    """Converts plain values to this type; `InvalidArgumentError` says what does not fit, and where."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InvalidArgumentError(_sentence(error), reason="BODY_INVALID") from None


def query_of(query_string: bytes, kind: type[msgspec.Struct]) -> Any:  # noqa: ANN401 - of that kind
    """Converts the query string to this type; only list filters may be repeated."""
    try:
        text = query_string.decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_QUERY_FIELDS_MAX)
    except ValueError as error:
        raise InvalidArgumentError(f"the query must be name=value&...: {error}", reason="QUERY_INVALID") from None
    values: dict[str, Any] = {}
    lists = {field.name for field in msgspec.structs.fields(kind) if isinstance(field.default_factory, type)}
    for name, value in pairs:
        if name in lists:
            values.setdefault(name, []).append(value)
        elif name in values:
            message = f"{name[:80]!r} must be given once, got it twice"
            raise InvalidArgumentError(message, reason="QUERY_INVALID")
        else:
            values[name] = value
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidArgumentError(_sentence(error), reason="QUERY_INVALID") from None


def _sentence(error: Exception) -> str:
    text = str(error).replace("`", "")
    return f"{text[:1].lower()}{text[1:400]}".replace("$.", "").replace("at $", "at the top")


def too_large() -> HttpError:
    """Returns the error for a body that exceeds the limit."""
    message = f"expected a body of at most {limits.MESSAGE_BYTES_MAX} bytes"
    return HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message, reason="BODY_TOO_LARGE")


class HttpResponse(msgspec.Struct, frozen=True):
    """A complete response."""

    status: int
    body: bytes = b""
    type: bytes = JSON_TYPE
    headers: Headers = []
    #: The Cache-Control header; data about jobs changes too quickly to be stored.
    cache: bytes = b"no-store"


class StreamedResponse(Protocol):
    """A response that continues until the client disconnects or the server stops."""

    async def run(self) -> None:
        """Sends the whole response, including its head, except the last chunk."""
        ...


def answer(value: object, status: int = 200, headers: Headers | None = None) -> HttpResponse:
    """Encodes a value as a JSON response."""
    return HttpResponse(status, _ENCODER.encode(value), JSON_TYPE, headers or [])
