"""The rows of the simulated database, and the changes that its log records.

A change is applied to the visible rows when its transaction ends, and again when a standby replays the log.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.topologies.cluster.ports import ClusterView, NodeRecord, NodeView, ShardView, StoredFrame


@dataclass(frozen=True, slots=True)
class LeaderRow:
    """The leadership of a shard; `ends_ms` is a time of the database's clock."""

    epoch: int = 0
    holder: str = ""
    incarnation: str = ""
    ends_ms: int = 0
    successor: str = ""


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A registered node, and the time of its last beat."""

    record: NodeRecord
    beat_ms: int


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """A segment: the frames from its first position up to the next segment."""

    first_position: int
    epoch: int
    created_ms: int

    @property
    def name(self) -> str:
        """The name by which it is removed."""
        return f"frames_{self.first_position}"


@dataclass(slots=True)
class DatabaseRows:
    """All rows."""

    shards: int
    leaders: dict[int, LeaderRow] = field(default_factory=dict)
    nodes: dict[str, NodeRow] = field(default_factory=dict)
    #: The frames of each shard by their first position, in the order of their positions.
    frames: dict[int, dict[int, StoredFrame]] = field(default_factory=dict)
    segments: dict[int, list[SegmentRow]] = field(default_factory=dict)
    #: Rows of the inbox: the shard and the payload.
    inbox: dict[int, tuple[int, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for shard in range(self.shards):
            self.leaders[shard] = LeaderRow()
            self.frames[shard] = {}
            self.segments[shard] = []

    def end_position(self, shard: int) -> int:
        """Returns the last position of a shard; 0 if there is none."""
        frames = self.frames[shard]
        return frames[next(reversed(frames))].last_position if frames else 0

    def first_position(self, shard: int) -> int:
        """Returns the lowest position of a shard; the end + 1 if there is none."""
        return next(iter(self.frames[shard]), 1)

    def view(
        self, now_ms: int, leaders: Mapping[int, LeaderRow] | None = None, nodes: Mapping[str, NodeRow] | None = None
    ) -> ClusterView:
        """Returns the view of a transaction that has changed these rows."""
        all_leaders, all_nodes = {**self.leaders, **(leaders or {})}, {**self.nodes, **(nodes or {})}
        return ClusterView(
            now_ms,
            [NodeView(row.record, now_ms - row.beat_ms) for _, row in sorted(all_nodes.items())],
            [self._shard_view(shard, row, now_ms) for shard, row in sorted(all_leaders.items())],
        )

    def _shard_view(self, shard: int, row: LeaderRow, now_ms: int) -> ShardView:
        left_ms = row.ends_ms - now_ms if row.epoch else 0
        return ShardView(
            shard, row.epoch, row.holder, row.incarnation, left_ms, row.successor, self.end_position(shard)
        )


class Change(Protocol):
    """One change of the rows."""

    def apply(self, rows: DatabaseRows) -> None:
        """Makes the change."""
        ...


@dataclass(frozen=True, slots=True)
class FrameInserted:
    """A frame, under its first position."""

    shard: int
    frame: StoredFrame

    def apply(self, rows: DatabaseRows) -> None:
        """Inserts the frame."""
        rows.frames[self.shard][self.frame.first_position] = self.frame


@dataclass(frozen=True, slots=True)
class InboxInserted:
    """A row of the inbox."""

    row: int
    shard: int
    payload: bytes

    def apply(self, rows: DatabaseRows) -> None:
        """Inserts the row."""
        rows.inbox[self.row] = (self.shard, self.payload)


@dataclass(frozen=True, slots=True)
class InboxDeleted:
    """A row of the inbox is gone."""

    row: int

    def apply(self, rows: DatabaseRows) -> None:
        """Deletes the row."""
        rows.inbox.pop(self.row, None)


@dataclass(frozen=True, slots=True)
class LeaderSet:
    """The leadership of a shard."""

    shard: int
    row: LeaderRow

    def apply(self, rows: DatabaseRows) -> None:
        """Replaces the row."""
        rows.leaders[self.shard] = self.row


@dataclass(frozen=True, slots=True)
class NodeSet:
    """The entry of a node; None removes it."""

    name: str
    row: NodeRow | None

    def apply(self, rows: DatabaseRows) -> None:
        """Replaces or removes the entry."""
        if self.row is None:
            rows.nodes.pop(self.name, None)
        else:
            rows.nodes[self.name] = self.row


@dataclass(frozen=True, slots=True)
class SegmentBegun:
    """A new segment."""

    shard: int
    row: SegmentRow

    def apply(self, rows: DatabaseRows) -> None:
        """Adds the segment."""
        rows.segments[self.shard].append(self.row)


@dataclass(frozen=True, slots=True)
class SegmentsRemoved:
    """Segments of a shard, with their frames."""

    shard: int
    names: frozenset[str]

    def apply(self, rows: DatabaseRows) -> None:
        """Removes the segments, and the frames before the oldest one that is left."""
        segments = rows.segments[self.shard]
        segments[:] = [row for row in segments if row.name not in self.names]
        if segments:
            frames, first = rows.frames[self.shard], segments[0].first_position
            for position in [position for position in frames if position < first]:
                del frames[position]


def replayed(shards: int, log: Iterable[Iterable[Change]]) -> DatabaseRows:
    """Returns the rows after these transactions."""
    rows = DatabaseRows(shards)
    for changes in log:
        for change in changes:
            change.apply(rows)
    return rows
