"""HTTP/1.1 on one connection, with bounds on how long and how large a request may be.

Invariants: requests are answered one after the other, in the order of their heads. A body is kept only of a request
that was let in, and not beyond its bound. No timer belongs to a request, and no task to one that has not arrived: one
sweep a second looks at all connections. Who is too slow, too large or does not read is cut off; who is idle gives way
when there are too many.
"""

import asyncio
from collections import deque
from http import HTTPStatus
from typing import cast

import httptools

from holdfast import limits
from holdfast.gateway.http.answering import CONTINUE, LAST_CHUNK, bytes_of, problem_answer, stream_head
from holdfast.gateway.http.app import Application
from holdfast.gateway.http.asking import Answer, Asked, Head, Headers, too_large
from holdfast.gateway.http.problems import RETRY_AFTER_S, HttpError
from holdfast.gateway.refusing import hidden

_HEAD_S = limits.HTTP_HEAD_MS_MAX / 1_000
_BODY_S = limits.HTTP_BODY_MS_MAX / 1_000
_IDLE_S = limits.HTTP_IDLE_MS_MAX / 1_000
_UNREAD_S = limits.HTTP_UNREAD_MS_MAX / 1_000
#: How long a client that was cut off may take to read why.
_LINGER_S = 2.0
#: A body that was refused is still read to its end, so that the client gets to read why; but not for ever.
_BODY_BYTES_MAX = 4 * limits.MESSAGE_BYTES_MAX
_LATER = {"retry-after": str(RETRY_AFTER_S)}


class Shared:
    """What all connections of a server have in common."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self.connections: set[Connection] = set()
        #: The headers that all answers have, as they are sent.
        self.lines = b""


class _Exchange:
    """One request from its head on, until it is answered."""

    __slots__ = ("answer", "asked", "head", "is_expecting", "is_last", "is_started", "is_whole", "parts")

    def __init__(self, head: Head, admitted: Asked | Answer, *, is_last: bool) -> None:
        self.head = head
        self.asked = admitted if isinstance(admitted, Asked) else None
        #: What is answered without asking anybody.
        self.answer = admitted if isinstance(admitted, Answer) else None
        self.parts: list[bytes] = []
        #: Whether the client waits for a word before it sends the body.
        self.is_expecting = False
        self.is_whole = False
        self.is_started = False
        #: Whether the connection ends with it.
        self.is_last = is_last


class Connection(asyncio.Protocol):
    """One connection."""

    transport: asyncio.Transport

    def __init__(self, shared: Shared, loop: asyncio.AbstractEventLoop) -> None:
        self._shared = shared
        self._application = shared.application
        self._loop = loop
        self._parser = httptools.HttpRequestParser(self)
        # Else what a client sends after its last request would count as an error, and that one be lost.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._peer = ""
        self._is_secure = False
        # -- what arrives
        self._url = b""
        self._headers: Headers = []
        self._head_bytes = 0
        self._body_bytes = 0
        self._is_head_there = False
        self._arriving: _Exchange | None = None
        # -- what is to be answered, the first of them now
        self._exchanges: deque[_Exchange] = deque()
        self.task: asyncio.Task[None] | None = None
        # -- for how long, and since when, the client may keep the server waiting; None while that is not so
        self._patience_s: float | None = None
        self._since = 0.0
        self._is_begun = False
        self._unread_since: float | None = None
        self._is_cut = False
        self._cut_at: float | None = None

    # -- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes it, if need be in place of one that is idle."""
        self.transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._peer = f"{peer[0]}:{peer[1]}" if peer else ""
        self._is_secure = transport.get_extra_info("sslcontext") is not None
        self._shared.connections.add(self)
        self._wait(_HEAD_S)
        if len(self._shared.connections) > limits.HTTP_CONNECTIONS_MAX and not self._make_room():
            message, reason = "there are too many connections; try again in a moment", "TOO_MANY_CONNECTIONS"
            self._cut_off(HttpError(HTTPStatus.SERVICE_UNAVAILABLE, message, reason=reason, headers=_LATER))

    def _make_room(self) -> bool:
        """Whether somebody who waits for nothing but its own next word could be sent away."""
        waiting = [other for other in self._shared.connections if other.waits_since is not None and other is not self]
        if not waiting:
            return False
        min(waiting, key=lambda other: other.waits_since or 0.0).abort()
        return True

    @property
    def waits_since(self) -> float | None:
        """Since when this connection waits for its client; None while the server is the one who has to speak."""
        return None if self._is_cut or self._patience_s is None else self._since

    def _wait(self, patience_s: float | None) -> None:
        self._patience_s = patience_s
        self._since = self._loop.time()

    def connection_lost(self, error: Exception | None) -> None:
        """Nobody is there to be answered; what was begun ends by itself."""
        del error
        self._shared.connections.discard(self)
        for exchange in self._exchanges:
            if exchange.asked is not None and exchange.asked.over is not None:
                exchange.asked.over.set()
        self._exchanges.clear()
        del self._parser  # it knows this connection, and would keep it

    def sweep(self, now: float) -> None:
        """Cuts the connection off if its client has had its time."""
        is_over = self._cut_at is not None and now - self._cut_at > _LINGER_S
        if is_over or (self._unread_since is not None and now - self._unread_since > _UNREAD_S):
            self.abort()
        elif self._patience_s is not None and not self._is_cut and now - self._since > self._patience_s:
            if self._is_begun:
                message = "the request took too long to arrive"
                self._cut_off(HttpError(HTTPStatus.REQUEST_TIMEOUT, message, headers=_LATER))
            else:
                self.transport.close()

    def stop(self) -> None:
        """Answers what is being answered, and no more."""
        if self._exchanges and self._exchanges[0].is_started:
            self._end_with(self._exchanges[0])
        else:
            self.transport.close()

    # -- the request

    def data_received(self, data: bytes) -> None:
        """Some bytes of a request; not more of a head than its bound."""
        if self._is_cut:
            self._body_bytes += len(data)
            if self._body_bytes > _BODY_BYTES_MAX:
                self.abort()
            return
        if not self._is_head_there:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # It is answered in the language that it was asked in; whatever else was to be spoken is not.
            self._is_cut = True
            if self._exchanges:
                self._end_with(self._exchanges[-1])
        except httptools.HttpParserCallbackError as error:
            hidden(cast("Exception", error.__context__ or error), "http")
            self.abort()
        except httptools.HttpParserError:
            self._cut_off(_not_http())
        if not self._is_head_there and self._head_bytes > limits.HTTP_HEAD_BYTES_MAX:
            self._cut_off(_head_too_large())
        self._go_on()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._url = b""
        self._headers = []
        self._body_bytes = 0
        self._is_begun = True
        self._wait(_HEAD_S)

    def on_url(self, url: bytes) -> None:
        """A part of what it asks for."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One of its headers."""
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Its head is there: it is let in, or it is not."""
        if self._is_cut:
            return
        self._head_bytes = 0
        size = len(self._url) + sum([len(name) + len(value) + 4 for name, value in self._headers])
        if size > limits.HTTP_HEAD_BYTES_MAX:
            self._cut_off(_head_too_large())
        elif len(self._url) > limits.URL_BYTES_MAX:
            message = f"expected a URL of at most {limits.URL_BYTES_MAX} bytes"
            self._cut_off(HttpError(HTTPStatus.REQUEST_URI_TOO_LONG, message))
        elif (target := _target(self._url)) is None:
            self._cut_off(_not_http())
        else:
            self._admit(*target)

    def _admit(self, path: str, query: bytes) -> None:
        self._is_head_there = True
        parser = self._parser
        head = Head(parser.get_method().decode(), path, self._headers, self._peer, self._is_secure, query)
        # Version 1.0 knows no connection that stays, unless it says so, and is told so.
        is_last = not parser.should_keep_alive() or parser.get_http_version() == "1.0"
        admitted = self._application.admit(head)
        exchange = self._arriving = _Exchange(head, admitted, is_last=is_last)
        if isinstance(admitted, Asked):
            admitted.line = self
        if head.header(b"expect").lower() == "100-continue":
            exchange.is_expecting = True
            exchange.is_last = is_last or exchange.asked is None  # whether its body comes is up to the client
        self._wait(_BODY_S)
        self._exchanges.append(exchange)
        if len(self._exchanges) > 1:
            self.transport.pause_reading()

    def on_body(self, body: bytes) -> None:
        """A part of its body."""
        self._body_bytes += len(body)
        exchange = self._arriving
        if self._is_cut or exchange is None:
            return
        if self._body_bytes > _BODY_BYTES_MAX:
            self.abort()
        elif exchange.answer is None and exchange.asked is not None and exchange.asked.route.body is not None:
            exchange.parts.append(body)
            if self._body_bytes > limits.MESSAGE_BYTES_MAX:
                exchange.parts.clear()
                exchange.answer = self._application.refused(too_large(), exchange.head)

    def on_message_complete(self) -> None:
        """All of it is there."""
        self._is_head_there = self._is_begun = False
        exchange = self._arriving
        if self._is_cut or exchange is None:
            return
        exchange.is_whole = True
        if exchange.asked is not None:
            exchange.asked.body = b"".join(exchange.parts)
        self._wait(None if self._exchanges else _IDLE_S)  # it may have been answered before its end

    # -- the answer

    def _go_on(self) -> None:
        """Does what can be done now for the first request that is not answered."""
        exchanges = self._exchanges
        while exchanges and self._unread_since is None:
            exchange = exchanges[0]
            if exchange.is_started:
                return
            if exchange.answer is None:
                if exchange.is_whole and exchange.asked is not None:
                    exchange.is_started = True
                    self.task = self._loop.create_task(self._answer(exchange.asked))
                elif exchange.is_expecting:
                    exchange.is_expecting = False
                    self.transport.write(CONTINUE)
                return
            self._finish(exchange.answer)

    async def _answer(self, asked: Asked) -> None:
        try:
            self._finish(await self._application.answer(asked))
            self._go_on()
        except Exception as error:  # noqa: BLE001 - no request may stop the server
            hidden(error, "http")
            self.abort()

    def _finish(self, answer: Answer | None) -> None:
        """Sends the answer to the first request; without one, it was sent before its end is sent here."""
        if not self._exchanges:
            return  # the client has left
        exchange = self._exchanges.popleft()
        if answer is None:
            self.transport.write(LAST_CHUNK)
        else:
            is_head = exchange.head.method == "HEAD"
            self.transport.write(bytes_of(answer, self._shared.lines, is_head=is_head, is_last=exchange.is_last))
        if exchange.is_last or answer is None:
            self._exchanges.clear()
            self._is_cut = True
            if exchange.is_whole:
                self.transport.close()
            else:
                self._linger()
            return
        if not self._exchanges and exchange.is_whole and not self._is_begun:
            self._wait(_IDLE_S)
        if len(self._exchanges) <= 1:
            self.transport.resume_reading()

    def begin(self, headers: Headers) -> None:
        """Sends the head of an answer that goes on for as long as the client likes."""
        self.write(stream_head(headers, self._shared.lines))

    def write(self, data: bytes) -> None:
        """Sends a part of such an answer, if the client is still there."""
        if not self.transport.is_closing():
            self.transport.write(data)

    def get_write_buffer_size(self) -> int:
        """How much the client has not taken yet."""
        return 0 if self.transport.is_closing() else self.transport.get_write_buffer_size()

    def abort(self) -> None:
        """Ends the connection at once."""
        self.transport.abort()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is told."""
        self._unread_since = self._loop.time()

    def resume_writing(self) -> None:
        """It does again."""
        self._unread_since = None
        self._go_on()

    # -- the end

    def _end_with(self, exchange: _Exchange) -> None:
        """Nothing is answered after this one."""
        exchange.is_last = True
        while self._exchanges[-1] is not exchange:
            self._exchanges.pop()

    def _cut_off(self, error: HttpError) -> None:
        """Says why, unless something else is to be said, and closes; what has arrived before it is answered."""
        if self._is_cut or self.transport.is_closing():
            return
        self._is_cut = True
        exchanges, is_answered = self._exchanges, self._is_head_there and not self._exchanges
        if exchanges and not exchanges[-1].is_whole:
            exchanges.pop()
        if exchanges:
            exchanges[-1].is_last = True
            return
        if not is_answered:
            self.transport.write(bytes_of(problem_answer(error), self._shared.lines, is_last=True))
        self._linger()

    def _linger(self) -> None:
        """Closes in the one direction, and for a moment lets the other go on: else the client might not read why."""
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        self._cut_at = self._loop.time()
        try:
            self.transport.write_eof()
        except OSError:  # the client has gone already
            self.abort()


def _target(url: bytes) -> tuple[str, bytes] | None:
    """Path and query of what a request asks for, however it is written; None if it is nothing of the kind."""
    try:
        if url.startswith(b"/"):
            path, _, query = url.partition(b"#")[0].partition(b"?")
            return path.decode("ascii"), query
        parsed = httptools.parse_url(url)
        return (parsed.path or b"").decode("ascii"), parsed.query or b""
    except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
        return None


def _not_http() -> HttpError:
    return HttpError(HTTPStatus.BAD_REQUEST, "expected a request of HTTP/1.1", reason="HTTP_INVALID")


def _head_too_large() -> HttpError:
    message = f"expected a head of at most {limits.HTTP_HEAD_BYTES_MAX} bytes"
    return HttpError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message)
