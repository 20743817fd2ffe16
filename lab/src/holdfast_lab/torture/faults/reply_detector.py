"""Distinguishes responses from other frames on a connection.

HTTP/2 servers send first, and acknowledge settings, pings and windows all the time: only HEADERS and DATA belong to a
response. With other protocols, all data from the server is a response.
"""

_HEAD_BYTES = 9
_DATA, _HEADERS, _SETTINGS = 0x0, 0x1, 0x4


class ReplyDetector:
    """Follows the data from a server on one connection, from its first byte on."""

    def __init__(self) -> None:
        self._is_framed: bool | None = None
        #: The part of a frame's header that has arrived so far.
        self._head = b""
        #: The bytes of the current frame that have not arrived yet.
        self._body_bytes = 0

    def are_in(self, said: bytes) -> bool:
        """Whether a response begins in these bytes, which follow those of the previous call."""
        if self._is_framed is None:
            self._is_framed = _is_settings(said)
        if not self._is_framed:
            return True
        return self._has_answering_frame(said)

    def _has_answering_frame(self, said: bytes) -> bool:
        place, has_answer = 0, False
        while place < len(said):
            skipped = min(self._body_bytes, len(said) - place)
            self._body_bytes -= skipped
            place += skipped
            taken = said[place : place + _HEAD_BYTES - len(self._head)]
            self._head += taken
            place += len(taken)
            if len(self._head) == _HEAD_BYTES:
                self._body_bytes = int.from_bytes(self._head[:3], "big")
                has_answer = has_answer or self._head[3] in {_DATA, _HEADERS}
                self._head = b""
        return has_answer


def _is_settings(said: bytes) -> bool:
    """Whether the server sends HTTP/2: it begins with its settings, on stream 0."""
    return len(said) >= _HEAD_BYTES and said[3] == _SETTINGS and said[5:_HEAD_BYTES] == bytes(4)
