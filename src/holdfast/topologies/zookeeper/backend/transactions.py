"""What one transaction of the ensemble consists of, and how it can fail; no more than values.

A transaction does all of its steps or none. Whoever is refused is told which step failed, and why.
"""

from enum import Enum
from typing import NamedTuple

import msgspec

from holdfast import limits
from holdfast.errors import InvalidArgumentError

#: What the ensemble's encoding adds to the path and the data of a step, at most.
_STEP_BYTES = 80


class Create(NamedTuple):
    """Makes a node; a sequential one gets ten digits at the end of its name."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class Put(NamedTuple):
    """Replaces what a node holds, if it has this version."""

    path: str
    data: bytes
    version: int = -1


class Delete(NamedTuple):
    """Takes a node away that has no children."""

    path: str
    version: int = -1


class Check(NamedTuple):
    """Nothing but the condition that a node is there and has this version."""

    path: str
    version: int = -1


Step = Create | Put | Delete | Check


class Stat(msgspec.Struct, frozen=True, gc=False):
    """What the ensemble knows of a node beside its data."""

    version: int
    created_id: int
    changed_id: int
    changed_ms: int
    owner: int
    children: int


class ReadNode(msgspec.Struct, frozen=True, gc=False):
    """A node as it was read."""

    data: bytes
    stat: Stat


class StepFailure(Enum):
    """Why a step failed."""

    EXISTS = "the node is there already"
    MISSING = "the node is not there"
    CHANGED = "the node has another version"
    NOT_EMPTY = "the node has children"
    OTHER = "the ensemble refused it"


class RefusedError(Exception):
    """A transaction did nothing, because this step of it was not possible."""

    def __init__(self, index: int, step: Step, why: StepFailure) -> None:
        super().__init__(f"step {index} on {step.path!r}: {why.value}")
        self.index = index
        self.step = step
        self.why = why


class Done(NamedTuple):
    """A transaction that was done: the path of what each step made, and what each put left."""

    paths: list[str]
    stats: list[Stat | None]


def size_of(steps: list[Step]) -> int:
    """About how many bytes a transaction takes on the wire; never less."""
    return sum(_STEP_BYTES + len(step.path) + len(getattr(step, "data", b"")) for step in steps)


def check_size(steps: list[Step], what: str) -> None:
    """Refuses what the servers would answer by closing the connection."""
    size, most = size_of(steps), limits.ZOOKEEPER_TRANSACTION_BYTES_MAX
    if size > most:
        message = f"expected {what} to take at most {most} bytes in ZooKeeper, with labels and headers; got {size}"
        raise InvalidArgumentError(message, reason="NODE_TOO_LARGE")
