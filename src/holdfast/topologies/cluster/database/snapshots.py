"""`SnapshotStore` on PostgreSQL: the chunks are uploaded one by one, and one last row makes them a snapshot.

Invariants: a long transaction would keep the server from cleaning up, so each chunk is a transaction of its own. The
last commit is confirmed, so a standby that has the snapshot has every chunk, and every frame that it replaces.
"""

import uuid
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.errors import HoldfastError
from holdfast.journal.errors import SnapshotDamagedError
from holdfast.journal.snapshot import SnapshotHeader
from holdfast.journal.version import check_digest_version
from holdfast.postgres.statements import statements
from holdfast.topologies.cluster.database.frame_rows import signed, unsigned
from holdfast.topologies.cluster.database.journal_errors import as_journal_errors
from holdfast.topologies.cluster.database.session import DatabaseSession

_SQL = statements(__package__, "snapshots")


class StoredSnapshot(msgspec.Struct, frozen=True):
    """The row of a snapshot. `checksum` covers the header, and the checksum and the size of every chunk."""

    header: SnapshotHeader
    upload: uuid.UUID
    header_checksum: int
    checksum: int
    chunks: int
    bytes: int


class SnapshotTally:
    """Counts the chunks of a snapshot, and computes the checksum over all of them."""

    def __init__(self, header: SnapshotHeader) -> None:
        self.header_checksum = self.checksum = zlib.crc32(header.encode())
        self.chunks = self.bytes = 0

    def add(self, chunk: bytes) -> int:
        """Adds a chunk, and returns its own checksum."""
        own = zlib.crc32(chunk)
        self.checksum = zlib.crc32(len(chunk).to_bytes(8, "big") + own.to_bytes(4, "big"), self.checksum)
        self.chunks += 1
        self.bytes += len(chunk)
        return own


class PostgresSnapshots:
    """The snapshots of one shard. One thread at a time uses it."""

    def __init__(self, session: DatabaseSession, shard: int) -> None:
        self._session = session
        self._shard = shard

    def positions(self) -> list[int]:
        """Returns the positions of all snapshots, oldest first, including damaged ones."""
        return [position for (position,) in self._read("positions", shard=self._shard)]

    def find(self, position: int) -> StoredSnapshot:
        """Returns the row of a snapshot; raises SnapshotDamagedError if its header is damaged."""
        rows = self._read("header", shard=self._shard, position=position)
        if not rows:
            raise FileNotFoundError(f"shard {self._shard} has no snapshot at position {position}")
        version, cluster_id, _, link, log_time_ms, digest, *rest = rows[0]
        header = SnapshotHeader(
            digest_version=version,
            cluster_id=cluster_id,
            position=position,
            link=link,
            log_time_ms=log_time_ms,
            digest=unsigned(digest),
        )
        stored = StoredSnapshot(header, *rest)
        if SnapshotTally(header).header_checksum != stored.header_checksum:
            raise self._damaged(position, "its header does not match its checksum")
        check_digest_version(version, f"snapshot of shard {self._shard} at position {position}")
        return stored

    def chunks(self, position: int) -> Iterator[bytes]:
        """Yields the chunks; raises SnapshotDamagedError at a damaged or missing one."""
        stored = self.find(position)
        tally = SnapshotTally(stored.header)
        for number in range(stored.chunks):
            rows = self._read("chunk", upload=stored.upload, number=number)
            if not rows or tally.add(rows[0][1]) != rows[0][0]:
                raise self._damaged(position, f"chunk {number} is missing or does not match its checksum")
            yield rows[0][1]
        if (tally.checksum, tally.bytes) != (stored.checksum, stored.bytes):
            raise self._damaged(position, "its chunks do not match the checksum of the whole")

    def write(self, header: SnapshotHeader, chunks: Iterable[bytes]) -> None:
        """Writes a snapshot, durable when this returns; a failure, also one of `chunks`, leaves none."""
        upload, tally = uuid.uuid4(), SnapshotTally(header)
        with as_journal_errors():
            try:
                self._session.change(_SQL["begin"], {"upload": upload, "shard": self._shard})
                self._upload(upload, chunks, tally)
                self._session.change(_SQL["finish"], self._columns(header, upload, tally))
            except BaseException:
                with suppress(HoldfastError):  # the next write deletes it
                    self._session.change(_SQL["give_up"], {"upload": upload})
                raise

    def _upload(self, upload: uuid.UUID, chunks: Iterable[bytes], tally: SnapshotTally) -> None:
        for chunk in filter(None, chunks):
            number = tally.chunks
            checksum = tally.add(chunk)
            arguments = {"upload": upload, "number": number, "checksum": checksum, "body": chunk}
            self._session.change(_SQL["add"], arguments)

    def _columns(self, header: SnapshotHeader, upload: uuid.UUID, tally: SnapshotTally) -> dict[str, Any]:
        return {
            "shard": self._shard,
            "position": header.position,
            "upload": upload,
            "cluster_id": header.cluster_id,
            "digest_version": header.digest_version,
            "link": header.link,
            "log_time_ms": header.log_time_ms,
            "digest": signed(header.digest),
            "header_checksum": tally.header_checksum,
            "checksum": tally.checksum,
            "chunks": tally.chunks,
            "bytes": tally.bytes,
        }

    def remove(self, position: int) -> None:
        """Removes the snapshot at a position if there is one."""
        with as_journal_errors():
            self._session.change(_SQL["remove"], {"shard": self._shard, "position": position})

    def _read(self, name: str, **arguments: object) -> list[tuple[Any, ...]]:
        with as_journal_errors():
            return self._session.read(_SQL[name], arguments)

    def _damaged(self, position: int, problem: str) -> SnapshotDamagedError:
        return SnapshotDamagedError(
            f"the snapshot of shard {self._shard} at position {position} is damaged: {problem}. It can be deleted if an"
            " older one is good, or if the journal is complete.",
            reason="SNAPSHOT_DAMAGED",
            details={"shard": str(self._shard), "position": str(position)},
        )
