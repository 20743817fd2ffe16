"""Frames and nodes for tests of the cluster's database."""

import itertools
import time
from collections.abc import Callable, Iterator

from holdfast.topologies.cluster.database.frame_writer import PostgresFrameWriter
from holdfast.topologies.cluster.database.registry import PostgresRegistry
from holdfast.topologies.cluster.frame_checksum import seal
from holdfast.topologies.cluster.ports import Append, NodeRecord, StoredFrame

#: Longer than any pause of a busy machine.
LIMIT_MS = 60_000
LEASE_MS = 60_000
_PAUSE_S = 0.005
_DEADLINE_S = 60.0


def node(name: str = "a", incarnation: str = "", **fields: object) -> NodeRecord:
    """Returns the record of a node."""
    known: dict[str, object] = {
        "addresses": {"wire": f"{name}:1"},
        "pid": 7,
        "events": frozenset({"Created"}),
        "state": "serving",
        "applied": {0: 3},
    }
    return NodeRecord(name, incarnation or f"{name}-1", **(known | fields))  # type: ignore[arg-type]


def lead(registry: PostgresRegistry, name: str = "a", shard: int = 0, seen_epoch: int = 0) -> int | None:
    """Takes over a shard."""
    return registry.take(shard, seen_epoch, node(name), LEASE_MS)


def take_over(registry: PostgresRegistry, name: str = "b", shard: int = 0, seen_epoch: int = 1) -> int | None:
    """Takes a shard from a leader, whose lease ends."""
    registry.hand_over(shard, seen_epoch, name)
    return lead(registry, name, shard, seen_epoch)


def chain(*bodies: bytes, epoch: int = 1, after: StoredFrame | None = None, count: int = 1) -> list[StoredFrame]:
    """Returns linked frames."""
    return list(itertools.islice(chained(iter(bodies), epoch, after, count), len(bodies)))


def chained(bodies: Iterator[bytes], epoch: int, after: StoredFrame | None, count: int) -> Iterator[StoredFrame]:
    """Yields linked frames behind another frame."""
    position, link = (after.last_position + 1, after.checksum) if after else (1, 0)
    for body in bodies:
        frame = seal(
            first_position=position,
            count=count,
            epoch=epoch,
            digest=(1 << 64) - position,
            digest_version=2,
            link=link,
            body=body,
        )
        yield frame
        position, link = frame.last_position + 1, frame.checksum


def write(writer: PostgresFrameWriter, *frames: StoredFrame) -> None:
    """Appends frames, which must succeed."""
    assert [writer.append(frame) for frame in frames] == [Append.WRITTEN] * len(frames)


def wait_until(is_so: Callable[[], object]) -> None:
    """Waits for a condition that another thread or process brings about."""
    end = time.monotonic() + _DEADLINE_S
    while not is_so():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(_PAUSE_S)
