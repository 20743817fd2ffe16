"""What a worker says of itself in its node, and which line it stands in."""

import hashlib

import msgspec

from holdfast.backends.ports import Introduction
from holdfast.backends.zookeeper.paths import Lane


class Kind(msgspec.Struct, frozen=True, array_like=True):
    """What a worker takes; no queues means all."""

    types: tuple[str, ...]
    queues: tuple[str, ...] = ()
    slots: int = 1

    @property
    def name(self) -> str:
        """The same for all workers that take the same jobs."""
        words = "\n".join(("types", *self.types, "queues", *self.queues))
        return hashlib.sha256(words.encode()).hexdigest()[:32]

    def takes(self, lane: Lane) -> bool:
        return lane.route in self.types and (not self.queues or lane.queue in self.queues)


def kind_of(introduction: Introduction) -> Kind:
    return Kind(tuple(sorted(introduction.types)), tuple(sorted(introduction.queues)), introduction.slots)


def kind_said(kind: Kind) -> bytes:
    return msgspec.msgpack.encode(kind)


def kind_in(data: bytes) -> Kind:
    return msgspec.msgpack.decode(data, type=Kind)
