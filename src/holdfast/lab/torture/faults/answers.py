"""Telling an answer from the small talk of a connection.

HTTP/2 servers speak first and acknowledge settings, pings and windows all the time: only HEADERS and DATA answer
anybody. On every other protocol, all that a server says is an answer.
"""

_HEAD_BYTES = 9
_DATA, _HEADERS, _SETTINGS = 0x0, 0x1, 0x4


class Answers:
    """Follows what a server says on one connection, from its first byte on."""

    def __init__(self) -> None:
        self._is_framed: bool | None = None
        #: The head of a frame that has not come whole yet.
        self._head = b""
        #: What is still to come of the frame that began last.
        self._body_bytes = 0

    def are_in(self, said: bytes) -> bool:
        """Whether an answer begins in these bytes, which follow those of the call before."""
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
    """An HTTP/2 server begins with its settings, on stream 0."""
    return len(said) >= _HEAD_BYTES and said[3] == _SETTINGS and said[5:_HEAD_BYTES] == bytes(4)
