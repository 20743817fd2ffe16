"""One request, as much of it as was read, and one answer.

The head is there first: who asks, for what, and with which filters. The body is read when somebody wants it, and never
beyond its bound.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qsl

import msgspec

from holdfast import limits
from holdfast.errors import InvalidArgumentError, UnavailableError
from holdfast.gateway.guarding import Caller
from holdfast.gateway.http.problems import HttpError
from holdfast.gateway.http.strict_json import parse

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON_TYPE = b"application/json"
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

    def header(self, name: bytes) -> str:
        """The first header of this name; nothing if there is none."""
        for known, value in self.headers:
            if known == name:
                return value.decode("latin-1")
        return ""


class Asked:
    """A request that was let in."""

    __slots__ = ("_receive", "caller", "content", "expired", "head", "line", "params", "query", "query_string")

    def __init__(self, head: Head, query_string: bytes, receive: Receive, params: Mapping[str, str]) -> None:
        self.head = head
        self.query_string = query_string
        self._receive = receive
        self.params = params
        self.query: Any = None
        #: Who asks, where a scope is needed.
        self.caller: Caller
        #: Of somebody who stays: set when its right is lost.
        self.expired = asyncio.Event()
        #: The connection itself, for answers that never end.
        self.line: Any = None
        #: The body, once it was read.
        self.content: Any = None

    def read_query(self, kind: type[msgspec.Struct] | None) -> None:
        """Reads the filters; `InvalidArgumentError` names what is unknown, said twice or wrong."""
        if kind is None and not self.query_string:
            return
        self.query = query_of(self.query_string, kind or Nothing)

    async def read_json(self, kind: Any, *, is_optional: bool, by_name: Mapping[str, Any]) -> None:  # noqa: ANN401
        """Reads the body as this type, or as another that a name in it tells; an error says what is wrong, and where.

        Where it is optional, none stands for its defaults.
        """
        body = await self._read()
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

    async def _read(self) -> bytes:
        """All of the body; `HttpError` if it is too large."""
        length = self.head.header(b"content-length")
        if len(length) > 12 or int(length or 0) > limits.MESSAGE_BYTES_MAX:  # noqa: PLR2004 - digits
            raise _too_large()
        message = await self._receive()
        body, more = message.get("body", b""), message.get("more_body", False)
        if not more:
            if message["type"] == "http.disconnect":
                raise _gone()
            return bytes(body)
        parts, size = [body], len(body)
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise _gone()
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > limits.MESSAGE_BYTES_MAX:
                raise _too_large()
            more = message.get("more_body", False)
        return b"".join(parts)

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


def _too_large() -> HttpError:
    message = f"expected a body of at most {limits.MESSAGE_BYTES_MAX} bytes"
    return HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message, reason="BODY_TOO_LARGE")


def _gone() -> UnavailableError:
    return UnavailableError("the client went away", reason="CLIENT_GONE")


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

    async def run(self, receive: Receive, send: Send, headers: Headers) -> None:
        """Sends everything, the head of the answer included."""
        ...


def answer(value: object, status: int = 200, headers: Headers | None = None) -> Answer:
    """A value as JSON."""
    return Answer(status, _ENCODER.encode(value), JSON_TYPE, headers or [])
