"""The ports of the cluster: what its nodes ask of their database.

`database/` implements them with PostgreSQL; the simulator has a database of its own that loses answers, stalls and
fails over. All decisions (who may lead, what an unknown outcome means) are above these ports.

Invariants of every implementation:
- Every method is one transaction. When it returns, its changes are as durable as the database's commits are.
- `DatabaseLostError`: the connection failed, and it is unknown whether the transaction was committed. The next call
  opens a new connection. A call never waits longer than the time limit that the implementation was made with.
- Without a `DatabaseLostError` between them, two calls use the same connection, and so the same primary.
- A commit that may not have been replicated is a `DatabaseLostError`, unless the method returns `UNCONFIRMED`.
- `DatabaseRefusedError`: the database answered that it cannot do this (rights, version, schema); nothing was changed.
- Times are those of the database's clock. A node never compares them with its own clock, only with each other.
- A call that changes frames of a shard locks the shard's leader row (`FOR SHARE`), and a takeover updates that row: a
  takeover waits for appends in flight, and an append that waited for a takeover finds another epoch.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from holdfast.core.commands import Refusal
from holdfast.core.model import NewJob, Template
from holdfast.errors import FailedPreconditionError, UnavailableError
from holdfast.journal.port import SegmentInfo


class DatabaseLostError(UnavailableError):
    """The connection to the database failed during a call; the outcome of the call is unknown."""


class DatabaseRefusedError(FailedPreconditionError):
    """The database cannot be used for this cluster; nothing was changed."""


class StoredFrame(msgspec.Struct, frozen=True, gc=False):
    """One frame of a shard, as its row has it. `checksum` covers all other fields, `link` is that of the frame before.

    The first frame of a shard has the link 0.
    """

    first_position: int
    count: int
    epoch: int
    digest: int
    digest_version: int
    link: int
    checksum: int
    body: bytes

    @property
    def last_position(self) -> int:
        """The position of its last event."""
        return self.first_position + self.count - 1


class FrameKey(msgspec.Struct, frozen=True):
    """Identifies the frame at a position: another leader's frame has another epoch."""

    epoch: int
    checksum: int


class Append(StrEnum):
    """The outcome of an append that the database has answered."""

    #: The frame is durable, and the rows of the inbox that it contains are gone.
    WRITTEN = "written"
    #: The frame is committed, but the database reports that it may not have been replicated: a wait for the synchronous
    #: standby was canceled. It counts once a later commit is confirmed.
    UNCONFIRMED = "unconfirmed"
    #: Another epoch leads the shard; nothing was changed.
    FENCED = "fenced"
    #: There is a frame at this position already; nothing was changed.
    TAKEN = "taken"


class ShardWriter(Protocol):
    """The frames of one shard, for its leader. One thread at a time calls it."""

    def append(self, frame: StoredFrame, inbox: Sequence[int] = ()) -> Append:
        """Appends a frame under its epoch, and deletes these rows of the inbox, both or neither."""
        ...

    def find(self, first_position: int) -> FrameKey | None:
        """Returns the frame that begins at a position; None if there is none."""
        ...

    def confirm(self, epoch: int) -> Append:
        """Commits a change of the leader row under `epoch`: once WRITTEN, every earlier commit is replicated too."""
        ...

    def open_segment(self, first_position: int, epoch: int, created_ms: int) -> Append:
        """Begins a new segment, into which later frames go; WRITTEN also if it exists already."""
        ...

    def segments(self) -> list[SegmentInfo]:
        """Returns the segments, oldest first; all but the newest are sealed."""
        ...

    def remove_segments(self, names: Sequence[str], epoch: int) -> Append:
        """Drops these segments under `epoch`."""
        ...

    def close(self) -> None:
        """Closes the connection; harmless if there is none."""
        ...


class ShardReader(Protocol):
    """The frames of one shard, for standbys and for the takeover. One thread at a time calls it."""

    def frames(self, after: int, bytes_max: int) -> list[StoredFrame]:
        """Returns the next frames that end past a position, at least one if there is one.

        Further ones follow until their bodies have about `bytes_max` bytes.
        """
        ...

    def first_position(self) -> int:
        """Returns the lowest position that is stored; the end position + 1 if none is."""
        ...

    def end_position(self) -> int:
        """Returns the last position of the newest frame; 0 if there is none."""
        ...

    def close(self) -> None:
        """Closes the connection; harmless if there is none."""
        ...


class InboxRow(msgspec.Struct, frozen=True):
    """A job that a user has submitted in a transaction of the database, and that no frame contains yet."""

    row: int
    submitted_ms: int
    template: Template
    #: The index of its template is 0.
    job: NewJob


class JobInbox(Protocol):
    """The inbox of one shard, for its leader; `ShardWriter.append` deletes its rows. One thread at a time calls it."""

    def waiting(self, rows_max: int, bytes_max: int, besides: Collection[int] = ()) -> list[InboxRow]:
        """Returns the first rows but those of `besides`: at least one if there is one, else about `bytes_max`.

        A row may appear before one that was returned earlier: its transaction was committed later.
        """
        ...

    def reject(self, refusals: Mapping[int, Refusal], epoch: int) -> Append:
        """Moves rows to the rejected ones, with their reasons, under `epoch`; a row that is gone is passed over."""
        ...

    def close(self) -> None:
        """Closes the connection; harmless if there is none."""
        ...


class NodeRecord(msgspec.Struct, frozen=True):
    """The entry of one process in the registry of nodes."""

    name: str
    #: Random for each process: another process with the same name is another node.
    incarnation: str
    #: Addresses for clients, by protocol, as in the ready line: wire, grpc, http.
    addresses: dict[str, str]
    pid: int
    #: The names of the events that this process can apply. A leader writes only events that every live node knows.
    events: frozenset[str]
    #: serving, or draining: it takes over no shard and hands its shards over.
    state: str
    #: The positions up to which it has applied each shard.
    applied: dict[int, int]


class NodeView(msgspec.Struct, frozen=True):
    """A registered node, as the database sees it now."""

    record: NodeRecord
    #: The time since its last beat.
    silent_ms: int


class ShardView(msgspec.Struct, frozen=True):
    """The leadership of one shard, as the database sees it now."""

    shard: int
    #: 0 if the shard never had a leader.
    epoch: int
    #: The name and the incarnation of the holder of the epoch; empty if it never had one.
    holder: str
    incarnation: str
    #: The time until the lease ends; 0 or less if it has ended.
    remaining_ms: int
    #: The node to which the last leader handed the shard over; empty if it did not.
    successor: str
    #: The last position of the newest frame.
    end_position: int


class ClusterView(msgspec.Struct, frozen=True):
    """All nodes and shards at one instant of the database's clock."""

    now_ms: int
    nodes: list[NodeView]
    shards: list[ShardView]


class Registry(Protocol):
    """Nodes and leaderships. One thread at a time calls it."""

    def beat(self, node: NodeRecord, leads: Mapping[int, int], lease_ms: int) -> ClusterView:
        """Registers the node or renews its entry, renews the leases of the epochs that it leads; returns everything.

        `leads` has the epoch of each shard. A lease is renewed, to `lease_ms` from now, only if that epoch still leads
        and its lease has not ended: the view tells. `DatabaseRefusedError` (NODE_NAME_TAKEN) if another incarnation of
        this name is not silent for as long as a lease.
        """
        ...

    def take(self, shard: int, seen_epoch: int, node: NodeRecord, lease_ms: int) -> int | None:
        """Makes the node the leader of a shard and returns the new epoch, `seen_epoch` + 1.

        None, and nothing is changed, if another epoch than `seen_epoch` leads, or if its lease has not ended.
        """
        ...

    def hand_over(self, shard: int, epoch: int, successor: str) -> bool:
        """Ends the lease of an epoch now, and names the node that should take over; False if another epoch leads."""
        ...

    def leave(self, node: NodeRecord) -> None:
        """Removes the entry of the node, if this incarnation still has it."""
        ...

    def close(self) -> None:
        """Closes the connection; harmless if there is none."""
        ...
