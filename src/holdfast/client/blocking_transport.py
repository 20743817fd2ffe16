"""Calls over the wire on the caller's own thread, which saves a sync caller two switches between threads.

A connection belongs to one thread and has one call at a time.
"""

import contextlib
import socket
from collections import deque
from typing import Self, TypeVar

from holdfast import limits
from holdfast.client.endpoints import CONNECT_S, FOLLOWS_MAX, REDIRECTS_MAX, Endpoint, closed_early
from holdfast.client.wire_line import NotWireError, check_opened, not_wire, opening_bytes
from holdfast.client.wire_transport import encoded_call, expired, response_of
from holdfast.errors import UnavailableError
from holdfast.wire.frames import FrameReader, MalformedFrameError, framed
from holdfast.wire.messages import (
    CALLS,
    ERROR,
    MALFORMED,
    OPENED_BYTES_MAX,
    NotLeaderError,
    Reply,
    decode_failure,
    decode_reply,
)
from holdfast.wire.methods import WireMethod

Q = TypeVar("Q")
R = TypeVar("R")

_READ_BYTES = 65_536


class BlockingTransport:
    """One connection. Any failure closes it, because the request may have been sent only in part."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._reader = FrameReader(limits.MESSAGE_BYTES_MAX)
        #: The reply that is awaited, or an error of the connection after it.
        self._unread: deque[bytes] = deque()
        self._last_id = 0
        self.is_open = True
        #: The timeout that the socket has after the opening; None waits for any time.
        self._waits_s: float | None = None

    @classmethod
    def connect(cls, endpoint: Endpoint, within_s: float | None = None) -> Self:
        """Connects; raises the server's refusal, or `UnavailableError` (UNREACHABLE) if no server answers.

        `within_s` limits the wait for the server's opening, if it is shorter than that for any connection.
        """
        redirects = follows = 0
        wait_s = CONNECT_S if within_s is None else min(within_s, CONNECT_S)
        while True:
            transport = cls(endpoint.connect_blocking())
            try:
                transport._open(opening_bytes(CALLS, endpoint.token, endpoint.shard), wait_s)
            except NotWireError:
                transport.drop()
                redirects += 1
                if redirects > REDIRECTS_MAX or not endpoint.redirect():
                    raise not_wire(endpoint) from None
            except NotLeaderError as error:
                transport.drop()
                follows += 1
                if follows > FOLLOWS_MAX or not endpoint.follow(error.leader):
                    raise
            except TimeoutError:
                transport.drop()
                endpoint.follow("")
                raise closed_early(endpoint, TimeoutError("it did not answer in time")) from None
            except OSError as error:
                transport.drop()
                endpoint.follow("")
                raise closed_early(endpoint, error) from error
            except BaseException:
                transport.drop()
                raise
            else:
                return transport

    def _open(self, opening: bytes, wait_s: float) -> None:
        self._line.settimeout(wait_s)
        self._waits_s = wait_s
        self._line.sendall(opening)
        try:
            check_opened(self._message())
        except MalformedFrameError:
            raise NotWireError from None
        except ConnectionResetError:
            if self._reader.announced_bytes <= OPENED_BYTES_MAX:
                raise
            raise NotWireError from None  # a message of another protocol

    def call(self, method: WireMethod[Q, R], request: Q, deadline_s: float | None) -> R:
        """Sends a request and blocks this thread until the response arrives; without a deadline, for any time."""
        self._last_id += 1
        message = framed(encoded_call(self._last_id, method, request))
        try:
            if deadline_s != self._waits_s:
                self._line.settimeout(deadline_s)
                self._waits_s = deadline_s
            self._line.sendall(message)
            reply = self._reply()
        except TimeoutError:
            self.drop()
            raise expired(method) from None
        except (OSError, MalformedFrameError, *MALFORMED) as error:
            self.drop()
            raise _lost(str(error)) from error
        except BaseException:  # such as KeyboardInterrupt, at any step
            self.drop()
            raise
        return response_of(method, reply)

    def drop(self) -> None:
        """Closes the connection at once, even while a thread waits in it."""
        self.is_open = False
        with contextlib.suppress(OSError):  # it may be closed already
            self._line.shutdown(socket.SHUT_RDWR)
        self._line.close()

    def __del__(self) -> None:
        self._line.close()  # the thread that owned it has ended

    def _reply(self) -> Reply:
        while True:
            reply = decode_reply(self._message())
            if reply.id == self._last_id:
                return reply
            if not reply.id and reply.kind == ERROR:  # of the connection itself, which then ends
                self.drop()
                raise decode_failure(reply.body).error()

    def _message(self) -> bytes:
        """Receives one message."""
        while not self._unread:
            data = self._line.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            self._unread += self._reader.feed(data)
        return self._unread.popleft()


def _lost(why: str) -> UnavailableError:
    return UnavailableError(f"the connection to the server was lost: {why}", reason="CONNECTION_LOST")
