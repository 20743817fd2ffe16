"""Values that go down for ever, where a later version could have put something: whoever reads them skips them."""

#: How MessagePack begins an array, and a map, of few parts; and how many these are.
_ARRAY, _MAP, _FEW = 0x90, 0x80, 15
_DEPTH = 5_000
#: The beginning of arrays within arrays, as MessagePack and as JSON.
DEEP, DEEP_JSON = bytes([_ARRAY + 1]) * _DEPTH, b"[" * _DEPTH


def deepened(data: bytes) -> bytes:
    """The same array or map of MessagePack with one part more; what has many parts stays as it is."""
    if _ARRAY <= data[0] < _ARRAY + _FEW:
        return bytes([data[0] + 1]) + data[1:] + DEEP
    return bytes([data[0] + 1]) + data[1:] + b"\xa1x" + DEEP if _MAP <= data[0] < _MAP + _FEW else data
