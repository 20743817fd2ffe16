"""Connections of the wire that send an opening and large bodies without a token: misbehaving clients.

They send as much as the server reads, ignore its answers, and never close a connection.
"""

import selectors
import socket
import time

from holdfast.wire.frames import framed
from holdfast.wire.messages import CALLS, MAGIC, OPENING_BYTES_MAX, Opening, encode
from holdfast.wire.methods import SUBMIT

_PIECE = bytes(262_144)


def _announced(body_bytes: int) -> tuple[bytes, int]:
    """An opening of the size of the body."""
    return MAGIC + body_bytes.to_bytes(4, "big"), body_bytes


def _unfinished(_: int) -> tuple[bytes, int]:
    """An opening of the largest size, without its last byte."""
    return MAGIC + OPENING_BYTES_MAX.to_bytes(4, "big"), OPENING_BYTES_MAX - 1


def _calls(body_bytes: int) -> tuple[bytes, int]:
    """A whole opening without a token, and then a call with the body."""
    opening = MAGIC + framed(encode(Opening(1, 1, CALLS)))
    call = encode((1, SUBMIT.name))
    return opening + (len(call) + 5 + body_bytes).to_bytes(4, "big") + call, body_bytes


#: By name: the first bytes of a connection, and the size of the body after them.
OPENINGS = {"announced opening": _announced, "unfinished opening": _unfinished, "opening, then calls": _calls}


class WireAttacker:
    """Many connections: `push` while data moves, then `close`."""

    def __init__(self, host: str, port: int, opening: str, *, count: int, body_bytes: int) -> None:
        first, self._unsent_bytes = OPENINGS[opening](body_bytes)
        self._selector = selectors.DefaultSelector()
        self._lines: list[socket.socket] = []
        #: The number of connections that the server has ended.
        self.refused = 0
        #: Bytes that the system accepted for the server; some of them may be in its buffers.
        self.sent_bytes = 0
        for _ in range(count):
            line = socket.create_connection((host, port), 10)
            line.sendall(first)
            line.setblocking(False)  # noqa: FBT003 - the socket's signature
            self._lines.append(line)
            self._selector.register(line, selectors.EVENT_READ | selectors.EVENT_WRITE, self._unsent_bytes)

    def push(self, quiet_s: float) -> None:
        """Sends until no data has moved for `quiet_s`."""
        moved_at = time.monotonic()
        while self._selector.get_map() and time.monotonic() - moved_at < quiet_s:
            for key, events in self._selector.select(0.05):
                if self._moved(key, events):
                    moved_at = time.monotonic()

    def close(self) -> None:
        """Closes the connections."""
        self._selector.close()
        for line in self._lines:
            line.close()

    def _moved(self, key: selectors.SelectorKey, events: int) -> bool:
        line = key.fileobj
        assert isinstance(line, socket.socket)
        try:
            if events & selectors.EVENT_READ and not line.recv(65_536):
                raise ConnectionResetError
            if not events & selectors.EVENT_WRITE:
                return True
            sent = line.send(_PIECE[: key.data])
        except BlockingIOError:
            return False
        except OSError:
            self.refused += 1
            self._selector.unregister(line)
            return True
        self.sent_bytes += sent
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if key.data > sent else 0)
        self._selector.modify(line, wanted, key.data - sent)
        return True
