"""The steps of a ZooKeeper transaction, its result and its failures, as values.

A transaction makes all of its steps or none. A refusal names the step that failed, and why.
"""

from enum import Enum
from typing import NamedTuple

import msgspec

from holdfast.errors import InvalidArgumentError
from holdfast.topologies.zookeeper import ensemble_limits

#: Maximum size that ZooKeeper's encoding adds to the path and the data of a step.
_STEP_BYTES = 80


class Create(NamedTuple):
    """Creates a node; a sequential one gets ten digits at the end of its name."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class Put(NamedTuple):
    """Replaces the data of a node, if it has this version."""

    path: str
    data: bytes
    version: int = -1


class Delete(NamedTuple):
    """Deletes a node that has this version and no children."""

    path: str
    version: int = -1


class Check(NamedTuple):
    """Requires that a node exists and has this version; changes nothing."""

    path: str
    version: int = -1


Step = Create | Put | Delete | Check


class Stat(msgspec.Struct, frozen=True, gc=False):
    """The metadata of a node."""

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
    """The reason of a failed step."""

    EXISTS = "the node exists already"
    MISSING = "the node does not exist"
    CHANGED = "the node has another version"
    NOT_EMPTY = "the node has children"
    OTHER = "the ensemble refused it"


class RefusedError(Exception):
    """A transaction changed nothing, because this step was not possible."""

    def __init__(self, index: int, step: Step, why: StepFailure) -> None:
        super().__init__(f"step {index} on {step.path!r}: {why.value}")
        self.index = index
        self.step = step
        self.why = why


class TransactionResult(NamedTuple):
    """A transaction that succeeded: the path that each step created, and the metadata after each put."""

    paths: list[str]
    stats: list[Stat | None]


def size_of(steps: list[Step]) -> int:
    """Returns an upper bound of the size of a transaction on the wire."""
    return sum(_STEP_BYTES + len(step.path) + len(getattr(step, "data", b"")) for step in steps)


def check_size(steps: list[Step], what: str) -> None:
    """Refuses a transaction that is too large; the servers would close the connection."""
    size, most = size_of(steps), ensemble_limits.TRANSACTION_BYTES_MAX
    if size > most:
        message = f"expected {what} to take at most {most} bytes in ZooKeeper, with labels and headers; got {size}"
        raise InvalidArgumentError(message, reason="NODE_TOO_LARGE")
