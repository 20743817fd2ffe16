"""The statements of the ports of the cluster, as transactions of the simulated database."""

from collections.abc import Callable, Mapping, Sequence

from holdfast.journal.errors import PositionRemovedError
from holdfast.journal.frame import FRAME_OVERHEAD
from holdfast.journal.port import SegmentInfo
from holdfast.topologies.cluster.ports import (
    Append,
    DatabaseLostError,
    DatabaseRefusedError,
    FrameKey,
    NodeRecord,
    StoredFrame,
)
from holdfast_lab.simulation.database_rows import (
    Change,
    FrameInserted,
    InboxDeleted,
    LeaderRow,
    LeaderSet,
    NodeRow,
    NodeSet,
    SegmentBegun,
    SegmentRow,
    SegmentsRemoved,
)
from holdfast_lab.simulation.simulated_database import SimulatedDatabase, Statements, Transaction

#: Makes the statements of one transaction.
Run = Callable[[Transaction], Statements]
_STATEMENT_US = 80


class DatabaseStatements:
    """Makes transactions. Each method returns what `SimulatedDatabase.begin` runs."""

    def __init__(self, database: SimulatedDatabase) -> None:
        self._database = database

    # -- frames

    def append(self, shard: int, frame: StoredFrame, inbox: Sequence[int]) -> Run:
        """Inserts a frame if its epoch leads and its position is free."""
        database, place = self._database, (shard, frame.first_position)

        def run(transaction: Transaction) -> Statements:
            yield database.lock(transaction, shard, is_shared=True)
            yield database.pause(_STATEMENT_US)
            if database.rows.leaders[shard].epoch != frame.epoch:
                return Append.FENCED
            while (other := database.inserting.get(place)) is not None:
                yield database.end_of(other)
            if frame.first_position in database.rows.frames[shard]:
                return Append.TAKEN
            database.inserting[place] = transaction
            transaction.on_end.append(lambda: database.inserted(place))
            changes: list[Change] = [FrameInserted(shard, frame), *map(InboxDeleted, inbox)]
            is_confirmed = yield from database.commit(transaction, changes)
            return Append.WRITTEN if is_confirmed else Append.UNCONFIRMED

        return run

    def find(self, shard: int, first_position: int) -> Run:
        """Reads the key of a frame."""

        def read() -> FrameKey | None:
            frame = self._database.rows.frames[shard].get(first_position)
            return FrameKey(frame.epoch, frame.checksum) if frame else None

        return self._reading(read)

    def confirm(self, shard: int, epoch: int) -> Run:
        """Writes the leader row as it is."""
        return self._led(shard, epoch, lambda row: [LeaderSet(shard, row)], is_shared=False)

    def open_segment(self, shard: int, first_position: int, epoch: int, created_ms: int) -> Run:
        """Begins a segment, unless it exists."""

        def changes(_: LeaderRow) -> list[Change]:
            exists = any(row.first_position == first_position for row in self._database.rows.segments[shard])
            return [] if exists else [SegmentBegun(shard, SegmentRow(first_position, epoch, created_ms))]

        return self._led(shard, epoch, changes, is_shared=False)

    def remove_segments(self, shard: int, names: Sequence[str], epoch: int) -> Run:
        """Removes segments."""
        return self._led(shard, epoch, lambda _: [SegmentsRemoved(shard, frozenset(names))], is_shared=False)

    def _led(self, shard: int, epoch: int, changes: Callable[[LeaderRow], Sequence[Change]], *, is_shared: bool) -> Run:
        """Commits changes under the leader row, if this epoch leads."""
        database = self._database

        def run(transaction: Transaction) -> Statements:
            yield database.lock(transaction, shard, is_shared=is_shared)
            yield database.pause(_STATEMENT_US)
            row = database.rows.leaders[shard]
            if row.epoch != epoch:
                return Append.FENCED
            is_confirmed = yield from database.commit(transaction, changes(row))
            return Append.WRITTEN if is_confirmed else Append.UNCONFIRMED

        return run

    # -- reading

    def frames(self, shard: int, after: int, bytes_max: int) -> Run:
        """Reads the next frames that end past a position."""

        def read() -> list[StoredFrame]:
            found, size = list[StoredFrame](), 0
            first = self._database.rows.first_position(shard)
            if after + 1 < first:
                raise PositionRemovedError(f"positions up to {first - 1} are removed")
            for frame in self._database.rows.frames[shard].values():
                if frame.last_position > after and (not found or size < bytes_max):
                    found.append(frame)
                    size += len(frame.body)
            return found

        return self._reading(read)

    def first_position(self, shard: int) -> Run:
        """Reads the lowest position."""
        return self._reading(lambda: self._database.rows.first_position(shard))

    def end_position(self, shard: int) -> Run:
        """Reads the last position."""
        return self._reading(lambda: self._database.rows.end_position(shard))

    def segments(self, shard: int) -> Run:
        """Reads the segments with their sizes."""
        return self._reading(lambda: self._segments(shard))

    def _segments(self, shard: int) -> list[SegmentInfo]:
        rows, frames = self._database.rows.segments[shard], list(self._database.rows.frames[shard].values())
        infos = list[SegmentInfo]()
        for number, row in enumerate(rows):
            is_last = number + 1 == len(rows)
            end = self._database.rows.end_position(shard) if is_last else rows[number + 1].first_position - 1
            inside = [frame for frame in frames if row.first_position <= frame.first_position <= end]
            size = sum(FRAME_OVERHEAD + len(frame.body) for frame in inside)
            last = max(end, row.first_position - 1)
            infos.append(SegmentInfo(row.name, row.first_position, last, row.epoch, size, not is_last, row.created_ms))
        return infos

    def _reading(self, read: Callable[[], object]) -> Run:
        def run(_: Transaction) -> Statements:
            yield self._database.pause(_STATEMENT_US)
            return read()

        return run

    # -- the registry

    def beat(self, node: NodeRecord, leads: Mapping[int, int], lease_ms: int) -> Run:
        """Renews the entry of a node and its leases, and reads everything."""
        database = self._database

        def run(transaction: Transaction) -> Statements:
            for shard in sorted(leads):
                yield database.lock(transaction, shard, is_shared=False)
            yield database.lock(transaction, node.name, is_shared=False)
            yield database.pause(_STATEMENT_US)
            now_ms, rows = database.now_ms(), database.rows
            self._refuse_other(node, now_ms, lease_ms)
            renewed = {shard: rows.leaders[shard] for shard, epoch in leads.items()}
            renewed = {
                shard: _with_end(row, now_ms + lease_ms)
                for shard, row in renewed.items()
                if row.epoch == leads[shard] and row.ends_ms > now_ms
            }
            entry = NodeRow(node, now_ms)
            view = rows.view(now_ms, renewed, {node.name: entry})
            changes: list[Change] = [NodeSet(node.name, entry)]
            changes += [LeaderSet(shard, row) for shard, row in renewed.items()]
            if not (yield from database.commit(transaction, changes)):
                raise DatabaseLostError("the commit may not be replicated")
            return view

        return run

    def _refuse_other(self, node: NodeRecord, now_ms: int, lease_ms: int) -> None:
        found = self._database.rows.nodes.get(node.name)
        if found and found.record.incarnation != node.incarnation and now_ms - found.beat_ms < lease_ms:
            raise DatabaseRefusedError(f"the name {node.name!r} is taken", reason="NODE_NAME_TAKEN")

    def take(self, shard: int, seen_epoch: int, node: NodeRecord, lease_ms: int) -> Run:
        """Makes the node the leader of a shard whose lease has ended."""
        database = self._database

        def run(transaction: Transaction) -> Statements:
            yield database.lock(transaction, shard, is_shared=False)
            yield database.pause(_STATEMENT_US)
            row, now_ms = database.rows.leaders[shard], database.now_ms()
            if row.epoch != seen_epoch or (row.epoch and row.ends_ms > now_ms):
                return None
            taken = LeaderRow(row.epoch + 1, node.name, node.incarnation, now_ms + lease_ms)
            if not (yield from database.commit(transaction, [LeaderSet(shard, taken)])):
                raise DatabaseLostError("the commit may not be replicated")
            return taken.epoch

        return run

    def hand_over(self, shard: int, epoch: int, successor: str) -> Run:
        """Ends the lease of an epoch."""
        database = self._database

        def run(transaction: Transaction) -> Statements:
            yield database.lock(transaction, shard, is_shared=False)
            yield database.pause(_STATEMENT_US)
            row = database.rows.leaders[shard]
            if row.epoch != epoch:
                return False
            ended = LeaderRow(row.epoch, row.holder, row.incarnation, database.now_ms(), successor)
            yield from database.commit(transaction, [LeaderSet(shard, ended)])
            return True

        return run

    def leave(self, node: NodeRecord) -> Run:
        """Removes the entry of a node."""
        database = self._database

        def run(transaction: Transaction) -> Statements:
            yield database.lock(transaction, node.name, is_shared=False)
            found = database.rows.nodes.get(node.name)
            if found is not None and found.record.incarnation == node.incarnation:
                yield from database.commit(transaction, [NodeSet(node.name, None)])
            return None

        return run


def _with_end(row: LeaderRow, ends_ms: int) -> LeaderRow:
    return LeaderRow(row.epoch, row.holder, row.incarnation, max(row.ends_ms, ends_ms), row.successor)
