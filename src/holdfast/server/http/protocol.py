"""HTTP/1.1 on one connection, with time limits for receiving a request and for sending a response.

Invariants: requests are answered one after the other, in the order of their heads. No timer belongs to a request, and
no task to an incomplete one: one sweep per second checks all connections. A client that is too slow or does not read is
disconnected; an idle one is evicted when there are too many.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import cast

from holdfast import limits
from holdfast.server.http.problems import RETRY_AFTER_S, HttpError
from holdfast.server.http.request import AdmittedRequest, Headers, HttpResponse
from holdfast.server.http.request_handler import RequestHandler
from holdfast.server.http.request_parser import BODY_BYTES_MAX, HttpExchange, RequestParser
from holdfast.server.http.response import CONTINUE, LAST_CHUNK, bytes_of, problem_answer, stream_head
from holdfast.server.refusal_log import hidden
from holdfast.server.wire.connection import WireConnection
from holdfast.wire.messages import MAGIC

_HEAD_S = limits.HTTP_HEAD_MS_MAX / 1_000
_BODY_S = limits.HTTP_BODY_MS_MAX / 1_000
_IDLE_S = limits.HTTP_IDLE_MS_MAX / 1_000
_UNREAD_S = limits.HTTP_UNREAD_MS_MAX / 1_000
#: Time for a client to read the error that ends its connection.
_LINGER_S = 2.0
_LATER = {"retry-after": str(RETRY_AFTER_S)}


#: Makes the server's end of a connection of the wire, for a peer.
MakeWire = Callable[[str], WireConnection]


class SharedServerState:
    """The state that all connections of a server share."""

    def __init__(self, application: RequestHandler, wire: MakeWire | None = None) -> None:
        self.application = application
        self.wire = wire
        self.connections: set[HttpConnection] = set()
        #: Limit of open connections.
        self.connections_max = limits.HTTP_CONNECTIONS_MAX
        #: The encoded headers of every response.
        self.lines = b""


class HttpConnection(asyncio.Protocol):
    """One connection."""

    transport: asyncio.Transport
    _arrivals: RequestParser
    _exchanges: deque[HttpExchange]

    def __init__(self, shared: SharedServerState, loop: asyncio.AbstractEventLoop) -> None:
        self._shared = shared
        self._application = shared.application
        self._loop = loop
        #: Answers the first request.
        self.task: asyncio.Task[None] | None = None
        #: How long, and since when, the connection may be idle: without a request or a response in progress.
        self._idle_s = _HEAD_S
        self._idle_since = loop.time()
        self._unread_since: float | None = None
        self._is_cut = False
        #: Whether nothing was received yet.
        self._is_fresh = True
        self._peer = ""
        #: When the connection ends after an error, or after the client has finished sending.
        self._end_at: float | None = None
        self._cut_bytes = 0

    # -- connecting and disconnecting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accepts the connection; above the limit, evicts an idle one or refuses."""
        self.transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        shown = f"{peer[0]}:{peer[1]}" if peer else ""
        is_secure = transport.get_extra_info("sslcontext") is not None
        self._parser = RequestParser(self._application, self, shown, self._loop.time, is_secure=is_secure)
        self._exchanges = self._parser.exchanges
        self._peer = shown
        self._shared.connections.add(self)
        if len(self._shared.connections) > self._shared.connections_max and not self._make_room():
            message, reason = "the server has too many connections; try again in a moment", "TOO_MANY_CONNECTIONS"
            self._cut_off(HttpError(HTTPStatus.SERVICE_UNAVAILABLE, message, reason=reason, headers=_LATER))

    def _make_room(self) -> bool:
        """Evicts the connection that has waited longest for its client; returns whether there was one."""
        waiting = [other for other in self._shared.connections if other is not self and other.waits_since is not None]
        if not waiting:
            return False
        idle = min(waiting, key=lambda other: other.waits_since or 0.0)
        self._shared.connections.discard(idle)  # at once: more may connect before its connection_lost is called
        idle.abort()
        return True

    @property
    def waits_since(self) -> float | None:
        """Since when this connection waits for its client; None while the server has to respond."""
        if self._is_cut:
            return None
        if self._parser.is_begun and self.transport.is_reading():
            return self._parser.since
        return None if self._exchanges else self._idle_since

    def connection_lost(self, error: Exception | None) -> None:
        """Cancels a read-only request, whose client is gone; requests with effects run to their end."""
        del error
        self._shared.connections.discard(self)
        exchanges = self._exchanges
        if self.task is not None and exchanges and exchanges[0].is_started and exchanges[0].is_look:
            self.task.cancel()
        for exchange in exchanges:
            if exchange.over is not None:
                exchange.over.set()
        self._parser.close()

    def sweep(self, now: float) -> None:
        """Closes the connection if its client has exceeded a time limit."""
        is_over = self._end_at is not None and now > self._end_at
        since, parser = self.waits_since, self._parser
        if is_over or (self._unread_since is not None and now - self._unread_since > _UNREAD_S):
            self.abort()
        elif since is None:
            return
        elif not parser.is_begun:
            if now - since > self._idle_s:
                self.transport.close()
        elif now - since > (_BODY_S if parser.is_head_there else _HEAD_S):
            message = "the request took too long to arrive"
            self._cut_off(HttpError(HTTPStatus.REQUEST_TIMEOUT, message, headers=_LATER))

    def stop(self) -> None:
        """Finishes the response in progress, then closes."""
        exchanges = self._exchanges
        if not exchanges or not exchanges[0].is_started:
            self.transport.close()
            return
        exchanges[0].is_last = True

    # -- requests

    def data_received(self, data: bytes) -> None:
        """Parses bytes of requests; a connection whose first byte is that of the wire is handed over."""
        if self._is_fresh:
            self._is_fresh = False
            if data[:1] == MAGIC[:1] and self._shared.wire is not None and not self._is_cut:
                self._hand_over(self._shared.wire(self._peer), data)
                return
        if self._is_cut:
            self._cut_bytes += len(data)
            if self._cut_bytes > BODY_BYTES_MAX:
                self.abort()
            return
        try:
            self._parser.feed(data)
        except HttpError as error:
            self._cut_off(error)
        except Exception as error:  # noqa: BLE001 - no request may stop the server
            hidden(error, "http")
            self.abort()
        if len(self._exchanges) > 1:
            self.transport.pause_reading()
        self._go_on()

    def _hand_over(self, wire: WireConnection, data: bytes) -> None:
        """Lets the wire serve this connection. Until its opening is over, the limits of this server apply to it."""
        wire.on_opened = lambda: self._shared.connections.discard(self)
        self.transport.set_protocol(wire)
        wire.connection_made(self.transport)
        wire.data_received(data)

    def eof_received(self) -> bool:
        """Handles a client that has finished sending; True keeps the connection to answer its complete requests."""
        exchanges = self._exchanges
        if exchanges and not exchanges[-1].is_whole:
            exchanges.pop()
        if not exchanges or any(exchange.over for exchange in exchanges) or not self.transport.can_write_eof():
            return False
        self._is_cut = exchanges[-1].is_last = True
        self._end_at = self._loop.time() + _UNREAD_S
        return True

    # -- responses

    def _go_on(self) -> None:
        """Processes the first unanswered request as far as possible."""
        exchanges = self._exchanges
        while exchanges and self._unread_since is None:
            exchange = exchanges[0]
            if exchange.is_started:
                return
            if exchange.answer is None:
                if exchange.is_whole and exchange.request is not None:
                    exchange.is_started = True
                    self.task = self._loop.create_task(self._answer(exchange.request))
                elif exchange.is_expecting:
                    exchange.is_expecting = False
                    self.transport.write(CONTINUE)
                return
            self._finish(exchange.answer)

    async def _answer(self, request: AdmittedRequest) -> None:
        try:
            self._finish(await self._application.answer(request))
            self._go_on()
        except Exception as error:  # noqa: BLE001 - no request may stop the server
            hidden(error, "http")
            self.abort()

    def _finish(self, answer: HttpResponse | None) -> None:
        """Sends the response to the first request; None stands for a stream, and sends its last chunk."""
        if not self._exchanges:
            return  # the client has disconnected
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
        self._idle_s, self._idle_since = _IDLE_S, self._loop.time()
        if len(self._exchanges) <= 1 and not self.transport.is_reading():
            self._parser.since = self._idle_since  # reading was paused until now
            self.transport.resume_reading()

    def begin(self, headers: Headers) -> None:
        """Sends the head of a streamed response."""
        self.write(stream_head(headers, self._shared.lines))

    def write(self, data: bytes) -> None:
        """Sends a part of a streamed response, if the client is still connected."""
        if not self.transport.is_closing():
            self.transport.write(data)

    def get_write_buffer_size(self) -> int:
        """Returns the number of unsent bytes."""
        return 0 if self.transport.is_closing() else self.transport.get_write_buffer_size()

    def pause_writing(self) -> None:
        """Records since when the client has been reading too slowly."""
        self._unread_since = self._loop.time()

    def resume_writing(self) -> None:
        """Continues, because the client has caught up."""
        self._unread_since = None
        self._go_on()

    # -- ending a connection

    def _cut_off(self, error: HttpError) -> None:
        """Sends the error unless another response is due, and closes; complete requests before it are answered."""
        if self._is_cut or self.transport.is_closing():
            return
        self._is_cut = True
        exchanges = self._exchanges
        is_answered = self._parser.is_head_there and not exchanges
        if exchanges and not exchanges[-1].is_whole:
            exchanges.pop()
        if exchanges:
            exchanges[-1].is_last = True
            return
        if not is_answered:
            self.transport.write(bytes_of(problem_answer(error), self._shared.lines, is_last=True))
        self._linger()

    def _linger(self) -> None:
        """Closes the sending side and still receives for a moment; otherwise the client might not read the error."""
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        self._end_at = self._loop.time() + _LINGER_S
        try:
            self.transport.write_eof()
        except OSError:  # the client is gone already
            self.abort()

    def abort(self) -> None:
        """Closes the connection at once."""
        self.transport.abort()
