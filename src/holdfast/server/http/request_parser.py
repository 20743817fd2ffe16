"""Parsing of the requests on one connection: each is admitted by its head, and limited in size.

Invariants: nothing is kept of a request that was not admitted; of any other at most the limit, and nothing that follows
its body. Malformed bytes end the connection.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from types import SimpleNamespace

import httptools

from holdfast import limits
from holdfast.server.http.problems import HttpError
from holdfast.server.http.request import AdmittedRequest, Head, Headers, HttpResponse, ResponseConnection, too_large
from holdfast.server.http.request_handler import RequestHandler

#: A refused body is still received up to this size, so that the client reads the error.
BODY_BYTES_MAX = 4 * limits.MESSAGE_BYTES_MAX
_VERSIONS = ("1.1", "1.0")
_FRAMING = (b"content-length", b"transfer-encoding")


class HttpExchange:
    """One request, from its head to its response."""

    __slots__ = ("answer", "head", "is_expecting", "is_last", "is_started", "is_whole", "parts", "request")

    def __init__(self, head: Head, admitted: AdmittedRequest | HttpResponse, *, is_last: bool) -> None:
        self.head = head
        self.request = admitted if isinstance(admitted, AdmittedRequest) else None
        #: A response that needs no handler.
        self.answer = admitted if isinstance(admitted, HttpResponse) else None
        self.parts: list[bytes] = []
        #: Whether the client waits for 100 Continue before it sends the body; without it, the next bytes are ambiguous.
        self.is_expecting = head.header(b"expect").lower() == "100-continue"
        self.is_whole = False
        self.is_started = False
        #: Whether the connection ends after this exchange.
        self.is_last = is_last or (self.is_expecting and self.request is None)

    @property
    def over(self) -> asyncio.Event | None:
        """For streams: the event that is set when the client disconnects."""
        return self.request.over if self.request is not None else None

    @property
    def is_look(self) -> bool:
        """Whether the request is read-only and not a stream."""
        return self.head.method in {"GET", "HEAD"} and self.over is None


class RequestParser:
    """The unanswered requests of one connection, as far as they have arrived."""

    def __init__(
        self,
        application: RequestHandler,
        line: ResponseConnection,
        peer: str,
        clock: Callable[[], float],
        *,
        is_secure: bool,
    ) -> None:
        self._application = application
        self._line = line
        self._peer = peer
        self._is_secure = is_secure
        self._clock = clock
        self._parser = _parser(self)
        #: In the order of their heads; the first one is answered next.
        self.exchanges: deque[HttpExchange] = deque()
        #: Whether a request has begun that is incomplete, since when it is awaited, and whether its head is complete.
        self.is_begun = False
        self.since = 0.0
        self.is_head_there = False
        self._url = b""
        self._headers: Headers = []
        #: Bytes since the last complete head or part of a body.
        self._bare_bytes = 0
        self._body_bytes = 0
        #: For an upgrade request: the header that determines where its body ends.
        self._framing = b""
        self._last: HttpExchange | None = None

    def feed(self, data: bytes) -> None:
        """Parses bytes; `HttpError` if they are malformed or too large: then nothing more can be parsed."""
        last = self._last
        if last is not None and last.is_last and last.is_whole:
            return
        self._bare_bytes += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except httptools.HttpParserError:
            raise _not_http() from None
        if self._bare_bytes > limits.HTTP_HEAD_BYTES_MAX:
            raise _head_too_large()

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # The upgrade is ignored: the request is answered in HTTP/1.1.
            assert self._last is not None
            self._last.is_last = True
            if self._framing:
                self._parse_body(data[upgrade.args[0] :])

    def _parse_body(self, data: bytes) -> None:
        """Continues after the head of an upgrade request: its parser would not parse the body as HTTP."""
        self._parser = _parser(SimpleNamespace(on_body=self.on_body, on_message_complete=self.on_message_complete))
        self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % self._framing)
        self._framing = b""
        self._parser.feed_data(data)

    def close(self) -> None:
        """Ends parsing."""
        del self._parser  # breaks the reference cycle with this object
        self._last = None
        self.exchanges.clear()

    # -- callbacks of the parser

    def on_message_begin(self) -> None:
        """Begins a request."""
        self._url = b""
        self._headers = []
        self._body_bytes = 0
        self.is_begun = True
        self.since = self._clock()

    def on_url(self, url: bytes) -> None:
        """Adds a part of the URL."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Adds a header; trailers are ignored, because they were not checked when the request was admitted."""
        if not self.is_head_there:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Admits or refuses the request, whose head is complete."""
        size = len(self._url) + sum([len(name) + len(value) + 4 for name, value in self._headers])
        if size > limits.HTTP_HEAD_BYTES_MAX:
            raise _head_too_large()
        if len(self._url) > limits.URL_BYTES_MAX:
            message = f"expected a URL of at most {limits.URL_BYTES_MAX} bytes"
            raise HttpError(HTTPStatus.REQUEST_URI_TOO_LONG, message)
        path, query = _target(self._url)
        parser = self._parser
        version = parser.get_http_version()
        if version not in _VERSIONS:
            raise HttpError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, f"expected HTTP/1.1, got HTTP/{version}")
        head = Head(parser.get_method().decode(), path, self._headers, self._peer, self._is_secure, query)
        _check_encoding(head)
        admitted = self._application.admit(head)
        if isinstance(admitted, AdmittedRequest):
            admitted.line = self._line
        # HTTP/1.0 keeps connections open only by an extension that is not offered here.
        is_last = not parser.should_keep_alive() or version == "1.0"
        self._last = HttpExchange(head, admitted, is_last=is_last)
        self.exchanges.append(self._last)
        self._framing = _framing(head) if parser.should_upgrade() else b""
        self.is_head_there, self._bare_bytes = True, 0
        self.since = self._clock()

    def on_body(self, body: bytes) -> None:
        """Adds a part of the body."""
        self._bare_bytes = 0
        self._body_bytes += len(body)
        if self._body_bytes > BODY_BYTES_MAX:
            raise too_large()
        exchange = self._last
        assert exchange is not None
        if (
            exchange.is_whole
            or exchange.request is None
            or exchange.request.route.body is None
            or exchange.answer is not None
        ):
            return
        exchange.parts.append(body)
        if self._body_bytes > limits.MESSAGE_BYTES_MAX:
            exchange.parts.clear()
            exchange.answer = self._application.refused(too_large(), exchange.head)

    def on_message_complete(self) -> None:
        """Completes the request."""
        exchange = self._last
        assert exchange is not None
        if self._framing or exchange.is_whole:
            return
        self.is_begun = self.is_head_there = False
        exchange.is_whole = True
        if exchange.request is not None:
            exchange.request.body = b"".join(exchange.parts)


def _parser(found: object) -> httptools.HttpRequestParser:
    """Returns a parser with these callbacks."""
    parser = httptools.HttpRequestParser(found)
    # Otherwise data after the last request would be an error.
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def _check_encoding(head: Head) -> None:
    """Raises `HttpError` for an unsupported transfer encoding."""
    given = head.header(b"transfer-encoding")
    if given and given.strip().lower() != "chunked":
        message = f"Transfer-Encoding must be chunked, got {given[:80]!r}"
        raise HttpError(HTTPStatus.NOT_IMPLEMENTED, message, reason="ENCODING_UNSUPPORTED")


def _framing(head: Head) -> bytes:
    """Returns the header that determines where the body ends; empty if there is none, and for a CONNECT tunnel."""
    if head.method == "CONNECT":
        return b""
    return next((b"%b: %b" % header for header in head.headers if header[0] in _FRAMING), b"")


def _target(url: bytes) -> tuple[str, bytes]:
    """Returns path and query of a request target, in every notation."""
    try:
        if url.startswith(b"/"):
            path, _, query = url.partition(b"#")[0].partition(b"?")
            return path.decode("ascii"), query
        parsed = httptools.parse_url(url)
        return (parsed.path or b"").decode("ascii"), parsed.query or b""
    except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
        raise _not_http() from None


def _not_http() -> HttpError:
    return HttpError(HTTPStatus.BAD_REQUEST, "expected an HTTP/1.1 request", reason="HTTP_INVALID")


def _head_too_large() -> HttpError:
    message = f"expected a request line and headers of at most {limits.HTTP_HEAD_BYTES_MAX} bytes"
    return HttpError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message)
