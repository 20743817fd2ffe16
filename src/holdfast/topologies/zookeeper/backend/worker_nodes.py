"""The description of a worker in its node, and the name of its line."""

import hashlib
import os
import uuid

import msgspec

from holdfast.ports import Introduction
from holdfast.topologies.zookeeper.backend.paths import NodeLane
from holdfast.topologies.zookeeper.backend.records import decoded

#: Random, because pids are reused, and are often the same in all containers.
_BORN = uuid.uuid4().hex


def this_process() -> str:
    """Returns a name that no other process has, not even one that is forked from this one."""
    return f"{_BORN}.{os.getpid()}"


class WorkerNodeKind(msgspec.Struct, frozen=True, array_like=True):
    """The types and queues that a worker takes; no queues means all."""

    types: tuple[str, ...]
    queues: tuple[str, ...] = ()
    slots: int = 1

    @property
    def name(self) -> str:
        """The name of the line: the same for all workers that take the same jobs."""
        words = "\n".join(("types", *self.types, "queues", *self.queues))
        return hashlib.sha256(words.encode()).hexdigest()[:32]

    def takes(self, lane: NodeLane) -> bool:
        return lane.route in self.types and (not self.queues or lane.queue in self.queues)


_DECODER = msgspec.msgpack.Decoder(WorkerNodeKind)


def kind_of(introduction: Introduction) -> WorkerNodeKind:
    return WorkerNodeKind(tuple(sorted(introduction.types)), tuple(sorted(introduction.queues)), introduction.slots)


def kind_said(kind: WorkerNodeKind) -> bytes:
    return msgspec.msgpack.encode(kind)


def kind_in(data: bytes) -> WorkerNodeKind:
    return decoded(_DECODER, data)
