"""Inputs made from other inputs: bits and bytes changed, parts cut, doubled, moved, and joined with those of others."""

import random
from collections.abc import Sequence

_SIZE_MAX = 1 << 16
_EDGES = (0, 1, 0x7F, 0x80, 0xC1, 0xDC, 0xDD, 0xFE, 0xFF)


def mutated(rng: random.Random, inputs: Sequence[bytes]) -> bytes:
    """One of the inputs after a few changes; at times a new one, and at times one that is not changed."""
    if not inputs or rng.randrange(32) == 0:
        return rng.randbytes(rng.randrange(64))
    data = bytearray(rng.choice(inputs))
    for _ in range(min(rng.randrange(6), rng.randrange(16))):
        _change(rng, data, inputs)
    return bytes(data[:_SIZE_MAX])


def _change(rng: random.Random, data: bytearray, inputs: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    size = min(1 << rng.randrange(9), len(data) - at)
    match rng.randrange(9):
        case 0 if at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        case 1 if at < len(data):
            data[at] = rng.choice(_EDGES)
        case 2 if at < len(data):
            data[at] = rng.randrange(256)
        case 3:
            del data[at : at + rng.randrange(size + 1)]
        case 4:
            data[at:at] = rng.randbytes(1 << rng.randrange(5))
        case 5:
            data[at:at] = data[at : at + size]
        case 6:
            other = rng.choice(inputs)
            start = rng.randrange(len(other) + 1)
            data[at : at + size] = other[start : start + rng.randrange(256)]
        case 7:
            data[at : at + size] = bytes(size)
        case _:
            del data[at:]
