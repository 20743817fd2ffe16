"""Very deeply nested values, in a field that a later version could have added: decoders must skip them."""

#: First bytes of a short array and of a short map in MessagePack, and the largest number of their items.
_ARRAY, _MAP, _FEW = 0x90, 0x80, 15
_DEPTH = 5_000
#: The opening bytes of nested arrays, in MessagePack and in JSON.
DEEP, DEEP_JSON = bytes([_ARRAY + 1]) * _DEPTH, b"[" * _DEPTH


def deepened(data: bytes) -> bytes:
    """The same MessagePack array or map with one more, deeply nested item; a long one is returned unchanged."""
    if _ARRAY <= data[0] < _ARRAY + _FEW:
        return bytes([data[0] + 1]) + data[1:] + DEEP
    return bytes([data[0] + 1]) + data[1:] + b"\xa1x" + DEEP if _MAP <= data[0] < _MAP + _FEW else data
