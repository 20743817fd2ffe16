"""`ShardWriter` on PostgreSQL: each change is one statement that locks the leader row of the shard."""

from collections.abc import Sequence

import psycopg

from holdfast.journal.port import SegmentInfo
from holdfast.postgres.statements import statements
from holdfast.topologies.cluster.database.address import DatabaseAddress
from holdfast.topologies.cluster.database.failures import meaning_of
from holdfast.topologies.cluster.database.frame_rows import columns_of
from holdfast.topologies.cluster.database.session import DatabaseSession, StatementReply
from holdfast.topologies.cluster.ports import Append, DatabaseRefusedError, FrameKey, StoredFrame

_SQL = statements(__package__, "frames")

#: The SQLSTATE of `holdfast.require_rows`.
_ROWS_MISSING = "HF004"


class PostgresFrameWriter:
    """The frames of one shard, for its leader. One thread at a time calls it."""

    def __init__(self, address: DatabaseAddress, shard: int) -> None:
        self._session = DatabaseSession(address)
        self._shard = shard

    def append(self, frame: StoredFrame, inbox: Sequence[int] = ()) -> Append:
        """Appends a frame under its epoch, and deletes these rows of the inbox, both or neither.

        `DatabaseRefusedError` (INBOX_CHANGED) if one of the rows is gone.
        """
        arguments = {"shard": self._shard, **columns_of(frame)}
        try:
            if inbox:
                reply = self._session.ask(_SQL["append_inbox"], {**arguments, "inbox": list(inbox)})
            else:
                reply = self._session.ask(_SQL["append"], arguments)
        except psycopg.errors.UniqueViolation:
            return Append.TAKEN
        except psycopg.Error as error:
            if error.sqlstate == _ROWS_MISSING:
                return self._without_rows(frame, error)
            raise meaning_of(error) from error
        return _outcome(reply)

    def _without_rows(self, frame: StoredFrame, error: psycopg.Error) -> Append:
        """Returns TAKEN if the frame that deleted the rows is there; otherwise another session deleted them."""
        if self.find(frame.first_position) is not None:
            return Append.TAKEN
        message = f"{error.diag.message_primary}: rows of the inbox were deleted by hand; start the node again"
        raise DatabaseRefusedError(message, reason="INBOX_CHANGED") from error

    def find(self, first_position: int) -> FrameKey | None:
        """Returns the frame that begins at a position; None if there is none."""
        arguments = {"shard": self._shard, "first_position": first_position}
        rows = self._session.read(_SQL["find"], arguments)
        return FrameKey(*rows[0]) if rows else None

    def confirm(self, epoch: int) -> Append:
        """Commits a change of the leader row under `epoch`: once WRITTEN, every earlier commit is replicated too."""
        reply = self._ask("confirm", epoch=epoch)
        return _written(reply) if reply.rows else Append.FENCED

    def open_segment(self, first_position: int, epoch: int, created_ms: int) -> Append:
        """Begins a new segment, which is a partition; its creation waits for no append of another shard."""
        return _outcome(self._ask("open_segment", first_position=first_position, epoch=epoch, created_ms=created_ms))

    def segments(self) -> list[SegmentInfo]:
        """Returns the segments, oldest first, with their sizes on the server's disk."""
        return [SegmentInfo(*row) for row in self._session.read(_SQL["segments"], {"shard": self._shard})]

    def remove_segments(self, names: Sequence[str], epoch: int) -> Append:
        """Removes these segments for all readers, oldest first, up to the first that a pin needs.

        The partitions are dropped at once unless a long statement uses the shard's frames; then a later call drops
        them.
        """
        return _outcome(self._ask("remove_segments", names=list(names), epoch=epoch))

    def close(self) -> None:
        """Closes the connection; harmless if there is none."""
        self._session.close()

    def _ask(self, name: str, **arguments: object) -> StatementReply:
        try:
            return self._session.ask(_SQL[name], {"shard": self._shard, **arguments})
        except psycopg.Error as error:
            raise meaning_of(error) from error


def _outcome(reply: StatementReply) -> Append:
    found = Append(reply.rows[0][0])
    return _written(reply) if found is Append.WRITTEN else found


def _written(reply: StatementReply) -> Append:
    return Append.WRITTEN if reply.is_confirmed else Append.UNCONFIRMED
