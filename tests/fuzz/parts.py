"""Several byte strings as one input, each after its size in two bytes."""

from collections.abc import Iterable

_SIZE_BYTES = 2


def packed(parts: Iterable[bytes]) -> bytes:
    """Join the parts."""
    return b"".join(len(part).to_bytes(_SIZE_BYTES, "big") + part for part in parts)


def unpacked(data: bytes) -> list[bytes]:
    """Split an input into its parts; the last one may be shorter than its size says."""
    parts, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + _SIZE_BYTES], "big")
        at += _SIZE_BYTES
        parts.append(data[at : at + size])
        at += size
    return parts
