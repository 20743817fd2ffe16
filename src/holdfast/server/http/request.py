"""One request, as much of it as has arrived, and one answer.

The head is there first: who asks, for what, and with which filters. The body is kept where somebody wants it, and never
beyond its bound.
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
#: A larger body is read beside the loop: the worst of them takes so long that others would notice.
_INLINE_BYTES = 128 * 1024


class Head(msgspec.Struct, frozen=True):
    """The head of a request; names of headers are in lower case."""

    method: str
    #: As it was sent, without what is after the question mark.
    path: str
    headers: Headers
    peer: str
    is_secure: bool = False
    #: What is after the question mark.
    query: bytes = b""

    def header(self, name: bytes) -> str:
        """The first header of this name; nothing if there is none."""
        for known, value in self.headers:
            if known == name:
                return value.decode("latin-1")
        return ""


class ByteSink(Protocol):
    """A connection that bytes are written to."""

    def write(self, data: bytes) -> None:
        """Sends it, now or later."""
        ...

    def get_write_buffer_size(self) -> int:
        """How much was not sent yet."""
        ...

    def abort(self) -> None:
        """Ends it at once."""
        ...


class AnswerLine(ByteSink, Protocol):
    """The connection of somebody who asks, for answers that never end."""

    def begin(self, headers: Headers) -> None:
        """Sends the head of such an answer."""
        ...


class Asked:
    """A request that was let in."""

    __slots__ = ("body", "caller", "content", "head", "line", "over", "params", "query", "route")

    def __init__(self, head: Head, route: "Route", params: Mapping[str, str]) -> None:
        self.head = head
        self.route = route
        self.params = params
        self.query: Any = None
        #: Who asks, where a scope is needed.
        self.caller: Caller
        #: All of the body, once the request has arrived, where the route has one.
        self.body = b""
        #: What it says.
        self.content: Any = None
        #: Of somebody who stays: its connection, and what is set when it has left, or has lost its right.
        self.line: AnswerLine
        self.over: asyncio.Event | None = None

    def read_query(self, kind: type[msgspec.Struct] | None) -> None:
        """Reads the filters; `InvalidArgumentError` names what is unknown, said twice or wrong."""
        if kind is None and not self.head.query:
            return
        self.query = query_of(self.head.query, kind or Nothing)

    async def read_json(self, kind: Any, *, is_optional: bool, by_name: Mapping[str, Any]) -> None:  # noqa: ANN401
        """Reads the body as this type, or as another that a name in it tells; an error says what is wrong, and where.

        Where it is optional, none stands for its defaults.
        """
        body = self.body
        if not body:
            if not is_optional:
                raise InvalidArgumentError("expected a body of JSON, got none", reason="BODY_MISSING")
            self.content = kind()
            return
        self._check_type()
        value = parse(body) if len(body) <= _INLINE_BYTES else await asyncio.to_thread(parse, body)
        if by_name and isinstance(value, dict):
            kind = next((other for name, other in by_name.items() if name in value), kind)
        self.content = converted(value, kind)

    def check_length(self) -> None:
        """`HttpError` for a body that is said to be too large."""
        length = self.head.header(b"content-length")
        if len(length) > 12 or int(length or 0) > limits.MESSAGE_BYTES_MAX:  # noqa: PLR2004 - digits
            raise too_large()

    def _check_type(self) -> None:
        given = self.head.header(b"content-type")
        if given != "application/json":
            kind, _, parameters = given.partition(";")
            charset = parameters.strip().lower().removeprefix("charset=").strip('"')
            if kind.strip().lower() != "application/json" or charset not in {"", "utf-8"}:
                message = f"expected the content type to be application/json, got {given[:80]!r}"
                raise HttpError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)
        if self.head.header(b"content-encoding").lower() not in {"", "identity"}:
            message = "expected a body that is not compressed"
            raise HttpError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message, reason="ENCODING_UNSUPPORTED")


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No filters."""


def converted(value: object, kind: Any) -> Any:  # noqa: ANN401 - any type that msgspec knows
    """Plain values as this type; `InvalidArgumentError` says what does not fit, and where."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InvalidArgumentError(_sentence(error), reason="BODY_INVALID") from None


def query_of(query_string: bytes, kind: type[msgspec.Struct]) -> Any:  # noqa: ANN401 - of that kind
    """The filters as a value of this type; a list may be said several times, everything else once."""
    try:
        text = query_string.decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_QUERY_FIELDS_MAX)
    except ValueError as error:
        raise InvalidArgumentError(
            f"expected the query to be name=value&...: {error}", reason="QUERY_INVALID"
        ) from None
    values: dict[str, Any] = {}
    lists = {field.name for field in msgspec.structs.fields(kind) if isinstance(field.default_factory, type)}
    for name, value in pairs:
        if name in lists:
            values.setdefault(name, []).append(value)
        elif name in values:
            message = f"expected {name[:80]!r} to be said once, got it twice"
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
    """For a body beyond its bound."""
    message = f"expected a body of at most {limits.MESSAGE_BYTES_MAX} bytes"
    return HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message, reason="BODY_TOO_LARGE")


class Answer(msgspec.Struct, frozen=True):
    """A whole answer."""

    status: int
    body: bytes = b""
    type: bytes = JSON_TYPE
    headers: Headers = []
    #: How long it may be kept: what is true of jobs is true for a moment.
    cache: bytes = b"no-store"


class Streamed(Protocol):
    """An answer that goes on until the client leaves or the server stops."""

    async def run(self) -> None:
        """Sends everything but its last chunk, the head of the answer included."""
        ...


def answer(value: object, status: int = 200, headers: Headers | None = None) -> Answer:
    """A value as JSON."""
    return Answer(status, _ENCODER.encode(value), JSON_TYPE, headers or [])
