"""The error for clients and workers of release 0.1, which spoke protobuf on the socket of a directory.

Their first byte told what followed. They get one message that they can decode, with a clear error; it is written byte
by byte here, because a server on a base install has no protobuf.
"""

_TEXT = "this process uses an older Holdfast than the one that serves the directory; install the same release in both"
_FIELDS = (b"FAILED_PRECONDITION", b"CLIENT_TOO_OLD", _TEXT.encode())
_WORKER_FIELDS = (b"INVALID_ARGUMENT", *_FIELDS[1:])  # a worker of that release does not retry this code

_BYTES = 2
_BIT = 0x80


def refusal_of_older(first: bytes) -> bytes:
    """Returns the message for a connection that begins with this byte; empty if it is not from release 0.1."""
    if first == b"C":  # Reply: id = 1, code = 4, reason = 5, message = 6; its first call has the id 1
        return b"\x08\x01" + b"".join(_field(number, text) for number, text in enumerate(_FIELDS, 4))
    if first == b"W":  # CoordinatorMessage: ending = 9; Ending: code = 1, reason = 2, message = 3
        return _field(9, b"".join(_field(number, text) for number, text in enumerate(_WORKER_FIELDS, 1)))
    return b""


def _field(number: int, content: bytes) -> bytes:
    """Encodes a field of the wire type for bytes and messages."""
    return bytes([number << 3 | _BYTES]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Encodes a length below 16,384."""
    return bytes([value]) if value < _BIT else bytes([value % _BIT | _BIT, value // _BIT])
