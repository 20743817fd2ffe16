"""HTTP/1.1 on one connection: uvicorn's protocol, with bounds on how long and how large a request may be.

No timer and no task belongs to a single request: one sweep a second looks at all connections. Who is too slow, too
large or does not read is cut off; who is idle gives way when there are too many.
"""

import asyncio
import logging
from http import HTTPStatus
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast import limits
from holdfast.gateway.http.answering import CYCLE
from holdfast.gateway.http.problems import PROBLEM_TYPE, HttpError, problem_of
from holdfast.logs import get_logger

_ENCODER = msgspec.json.Encoder()
_HEAD_S = limits.HTTP_HEAD_MS_MAX / 1_000
_BODY_S = limits.HTTP_BODY_MS_MAX / 1_000
_UNREAD_S = limits.HTTP_UNREAD_MS_MAX / 1_000
#: How long a client that was cut off may take to read why.
_LINGER_S = 2.0
#: A body that was refused is still read to its end, so that the client gets to read why; but not for ever.
_BODY_BYTES_MAX = 4 * limits.MESSAGE_BYTES_MAX


class _ToLog(logging.Handler):
    """What uvicorn has to say, in our log."""

    def emit(self, record: logging.LogRecord) -> None:
        """One line."""
        get_logger().error("http", message=record.getMessage(), exc_info=record.exc_info)


def _quiet_logger() -> logging.Logger:
    """Not part of the tree of loggers, so that nobody's configuration changes it; it tells bugs alone."""
    logger = logging.Logger("holdfast.http", logging.ERROR)  # noqa: LOG001 - see above
    logger.addHandler(_ToLog())
    return logger


_LOGGER = _quiet_logger()


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401 - as uvicorn says
        super().__init__(*arguments, **named)
        self.logger = _LOGGER
        self.access_log = False
        self._head_bytes = 0
        self._body_bytes = 0
        #: Since when a head or a body is awaited; None while a request is answered.
        self._awaited_since: float | None = None
        self._is_head_there = False
        self._is_used = False
        self._unread_since: float | None = None
        self._is_cut = False
        self._cut_at: float | None = None

    # -- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes it, if need be in place of one that is idle."""
        super().connection_made(transport)
        self._awaited_since = self.loop.time()
        if len(self.connections) > limits.HTTP_CONNECTIONS_MAX and not self._make_room():
            message = "there are too many connections; try again in a moment"
            self._cut_off(HttpError(HTTPStatus.SERVICE_UNAVAILABLE, message, reason="TOO_MANY_CONNECTIONS"))

    def _make_room(self) -> bool:
        """Whether somebody who waits for nothing but its own next word could be sent away."""
        others = [other for other in self.connections if isinstance(other, BoundedProtocol) and other is not self]
        waiting = [other for other in others if other.waits_since is not None]
        if not waiting:
            return False
        min(waiting, key=lambda other: other.waits_since or 0.0).transport.abort()
        return True

    @property
    def waits_since(self) -> float | None:
        """Since when this connection waits for its client; None while the server is the one who has to speak."""
        return None if self._is_cut else self._awaited_since

    def data_received(self, data: bytes) -> None:
        """Some bytes of a request; not more of a head than its bound."""
        if self._is_cut:
            self._body_bytes += len(data)
            if self._body_bytes > _BODY_BYTES_MAX:
                self.transport.abort()
            return
        if not self._is_head_there:
            self._head_bytes += len(data)
        super().data_received(data)
        if not self._is_head_there and self._head_bytes > limits.HTTP_HEAD_BYTES_MAX:
            self._cut_off(_head_too_large())

    def sweep(self, now: float) -> None:
        """Cuts the connection off if its client has had its time."""
        is_over = self._cut_at is not None and now - self._cut_at > _LINGER_S
        if is_over or (self._unread_since is not None and now - self._unread_since > _UNREAD_S):
            self.transport.abort()
        elif self._awaited_since is not None and not self._is_cut:
            waited = now - self._awaited_since
            is_begun = self._head_bytes > 0 or not self._is_used
            if waited > (_BODY_S if self._is_head_there else _HEAD_S) and (self._is_head_there or is_begun):
                message = "the request took too long to arrive"
                self._cut_off(HttpError(HTTPStatus.REQUEST_TIMEOUT, message))

    def pause_writing(self) -> None:
        """The client does not read as fast as it is told."""
        super().pause_writing()
        self._unread_since = self.loop.time()

    def resume_writing(self) -> None:
        """It does again."""
        super().resume_writing()
        self._unread_since = None

    # -- the request

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        if self._awaited_since is None or self._is_used:
            self._awaited_since = self.loop.time()
        self._is_used = True
        self._body_bytes = 0

    def on_headers_complete(self) -> None:
        """Its head is there."""
        size = len(self.url) + sum([len(name) + len(value) + 4 for name, value in self.headers])
        self._is_head_there, self._head_bytes = True, 0
        if size > limits.HTTP_HEAD_BYTES_MAX:
            self._cut_off(_head_too_large())
        elif len(self.url) > limits.URL_BYTES_MAX:
            message = f"expected a URL of at most {limits.URL_BYTES_MAX} bytes"
            self._cut_off(HttpError(HTTPStatus.REQUEST_URI_TOO_LONG, message))
        if not self._is_cut:
            scope: Any = self.scope
            scope["holdfast.line"] = self.transport
            super().on_headers_complete()
            scope[CYCLE] = self.cycle

    def on_body(self, body: bytes) -> None:
        """A part of its body."""
        if self._is_cut:
            return
        self._body_bytes += len(body)
        if self._body_bytes > _BODY_BYTES_MAX:
            self.transport.abort()
            return
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of it is there."""
        self._awaited_since, self._is_head_there = None, False
        if not self._is_cut:
            super().on_message_complete()
            if self.cycle.response_complete:
                self._awaited_since = self.loop.time()  # it was answered before its end, and the next may come

    def on_response_complete(self) -> None:
        """It was answered."""
        super().on_response_complete()
        if not self.pipeline:
            self._awaited_since = self.loop.time()

    # -- the end

    def send_400_response(self, msg: str) -> None:
        """Instead of uvicorn's words: a problem."""
        if not self._is_cut:
            self._cut_off(HttpError(HTTPStatus.BAD_REQUEST, "expected a request of HTTP/1.1", reason="HTTP_INVALID"))

    def _cut_off(self, error: HttpError) -> None:
        """Says why, if nothing else is being said, and closes."""
        self._is_cut = True
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            body = _ENCODER.encode(problem_of(error))
            head = (
                f"HTTP/1.1 {error.status.value} {error.status.phrase}\r\ncontent-type: {PROBLEM_TYPE.decode()}\r\n"
                f"content-length: {len(body)}\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self._linger()

    def _linger(self) -> None:
        """Closes in the one direction, and for a moment lets the other go on: else the client might not read why."""
        if self.transport.can_write_eof():
            self._cut_at = self.loop.time()
            self.transport.write_eof()
        else:
            self.transport.close()


def _head_too_large() -> HttpError:
    message = f"expected a head of at most {limits.HTTP_HEAD_BYTES_MAX} bytes"
    return HttpError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message)
