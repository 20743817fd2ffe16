"""Frames of the wire: the same messages for any division into pieces, none above the limit."""

from holdfast.wire.frames import FrameReader, MalformedFrameError, framed
from tests.fuzz.source import Source

_BYTES_MAX = 1_000


def seeds() -> list[bytes]:
    """Several messages, in pieces of several sizes."""
    messages = framed(b"") + framed(b"x" * 300) + framed(b"abc")
    return [bytes([size]) * 4 + messages for size in (0, 1, 7, 200)] + [b"\1\1" + framed(bytes(_BYTES_MAX + 1))]


def fuzz(data: bytes) -> None:
    """Reads the same bytes at once and in pieces."""
    source = Source(data)
    sizes = [1 + source.below(256) for _ in range(4)]
    stream = source.rest()
    whole, is_whole_bad = _read([stream])
    pieces: list[bytes] = []
    at = 0
    while at < len(stream):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(stream[at : at + size])
        at += size
    parts, is_parts_bad = _read(pieces)
    assert is_whole_bad == is_parts_bad
    # Messages in the same piece as a malformed frame are dropped with the connection.
    assert whole == parts or (is_whole_bad and parts[: len(whole)] == whole)
    assert all(len(message) <= _BYTES_MAX for message in parts)


def _read(pieces: list[bytes]) -> tuple[list[bytes], bool]:
    reader, messages = FrameReader(_BYTES_MAX), list[bytes]()
    try:
        for piece in pieces:
            messages += reader.feed(piece)
    except MalformedFrameError:
        return messages, True
    return messages, False
