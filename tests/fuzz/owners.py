"""Data of one owner of the microservices: an input is an image (first byte even) or the body of a frame (odd)."""

from collections.abc import Callable

import msgspec

from holdfast.topologies.microservices.services.owner_journal import StateMachine, join, split
from tests.fuzz.depth import deepened
from tests.fuzz.parts import packed, unpacked

_IMAGE, _FRAME = b"\0", b"\1"


def owner_seeds(written: list[bytes], machine: StateMachine) -> list[bytes]:
    """Images and frames of this machine."""
    return [
        _IMAGE + packed(machine.image()),
        _FRAME + join(1_000, written),
        *(_FRAME + join(1_000, [data]) for data in written),
        _FRAME + join(1_000, [deepened(data) for data in written]),
        _IMAGE + packed(map(deepened, machine.image())),
    ]


def fuzz_owner(make: Callable[[], StateMachine], data: bytes) -> None:
    """Checks that decoded data can be encoded and decoded again; data that cannot be decoded raises a MsgspecError."""
    machine = make()
    try:
        if data[:1] < _FRAME or data[0] % 2 == 0:
            machine.restore(unpacked(data[1:]))
        else:
            _, written = split(data[1:])
            for found in map(machine.decode, written):
                assert machine.decode(machine.encode(found)) == found
            return
    except msgspec.MsgspecError:
        return
    chunks = list(machine.image())
    other = make()
    other.restore(chunks)
    assert list(other.image()) == chunks
    assert other.digest == machine.digest
