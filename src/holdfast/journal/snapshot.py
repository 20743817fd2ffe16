"""Snapshot files: the state at one position, as chunks of opaque bytes.

Layout, big-endian:

    preamble 16 | digest version u32 | cluster id 16 | position u64 | link u32 (checksum of the frame that
    ends there) | log time ms u64 | digest u64 | header checksum u32
    then per chunk: size u32 (never 0) | checksum u32 | bytes
    then the trailer: zero u32 | chunk count u64 | total bytes u64 | checksum of all checksums before it u32

Invariants: a snapshot gets its final name only when it is complete and durable. A reader that has read the trailer has
verified every byte. Before that only the single chunks are verified, so a caller that builds state from them discards
the state if the reader raises.
"""

import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from holdfast.journal.disk import Disk, File
from holdfast.journal.errors import SnapshotDamagedError
from holdfast.journal.version import PREAMBLE_BYTES, check_digest_version, preamble, preamble_problem
from holdfast.journal.whole_write import TEMPORARY_SUFFIX, remove_if_present, write_fully

SNAPSHOT_MAGIC = b"HFSNAPSH"

_FIELDS = struct.Struct(">I16sQIQQ")
_CHUNK = struct.Struct(">II")
_TRAILER = struct.Struct(">IQQI")
_CHECKSUM_AT = PREAMBLE_BYTES + _FIELDS.size
_HEADER_BYTES = _CHECKSUM_AT + 4
_NAME = re.compile(r"snapshot-(\d{20})\.snap")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeader:
    """The header of a snapshot."""

    digest_version: int
    cluster_id: bytes
    position: int
    link: int
    log_time_ms: int
    digest: int

    @property
    def name(self) -> str:
        return snapshot_name(self.position)

    def encode(self) -> bytes:
        data = preamble(SNAPSHOT_MAGIC) + _FIELDS.pack(
            self.digest_version, self.cluster_id, self.position, self.link, self.log_time_ms, self.digest
        )
        return data + zlib.crc32(data).to_bytes(4, "big")


def list_snapshots(disk: Disk) -> list[int]:
    """Return the positions of all snapshots, oldest first, including damaged ones."""
    return sorted(int(match[1]) for name in disk.names() if (match := _NAME.fullmatch(name)))


def snapshot_name(position: int) -> str:
    return f"snapshot-{position:020d}.snap"


def snapshot_bytes(disk: Disk, position: int) -> int:
    """Return the size of the snapshot at `position`."""
    file = disk.open(snapshot_name(position))
    try:
        return file.size()
    finally:
        file.close()


def write_snapshot(disk: Disk, header: SnapshotHeader, chunks: Iterable[bytes]) -> str:
    """Write a snapshot, durable when this returns, and return its name; a failure leaves no snapshot."""
    temporary = header.name + TEMPORARY_SUFFIX
    remove_if_present(disk, temporary)
    file = disk.create(temporary)
    try:
        _write_parts(file, header, chunks)
        file.sync()
        disk.rename(temporary, header.name)
    except Exception:
        remove_if_present(disk, temporary)
        raise
    finally:
        file.close()
    disk.sync_dir()
    return header.name


def _write_parts(file: File, header: SnapshotHeader, chunks: Iterable[bytes]) -> None:
    head = header.encode()
    write_fully(file, 0, head)
    offset, count, size, total = len(head), 0, 0, zlib.crc32(head[_CHECKSUM_AT:])
    for chunk in chunks:
        if not chunk:
            continue
        mark = _CHUNK.pack(len(chunk), zlib.crc32(chunk))
        write_fully(file, offset, mark + chunk)
        offset += len(mark) + len(chunk)
        count, size, total = count + 1, size + len(chunk), zlib.crc32(mark, total)
    write_fully(file, offset, _TRAILER.pack(0, count, size, total))


def read_snapshot_header(disk: Disk, position: int) -> SnapshotHeader:
    """Return the header of the snapshot at `position`; its chunks are not verified."""
    file = disk.open(snapshot_name(position))
    try:
        return _read_header(file, snapshot_name(position))
    finally:
        file.close()


def read_snapshot(disk: Disk, position: int) -> Iterator[bytes]:
    """Yield the chunks of the snapshot at `position`; raise SnapshotDamagedError at a damaged part."""
    name = snapshot_name(position)
    file = disk.open(name)
    try:
        _read_header(file, name)
        yield from _read_chunks(file, name)
    finally:
        file.close()


def _read_header(file: File, name: str) -> SnapshotHeader:
    data = file.read_at(0, _HEADER_BYTES)
    problem = preamble_problem(data, SNAPSHOT_MAGIC, name)
    if not problem and zlib.crc32(data[:_CHECKSUM_AT]) != int.from_bytes(data[_CHECKSUM_AT:], "big"):
        problem = "the checksum of its header does not match"
    if problem:
        raise _damaged(name, 0, problem)
    digest_version, cluster_id, position, link, log_time_ms, digest = _FIELDS.unpack_from(data, PREAMBLE_BYTES)
    check_digest_version(digest_version, name)
    header = SnapshotHeader(
        digest_version=digest_version,
        cluster_id=cluster_id,
        position=position,
        link=link,
        log_time_ms=log_time_ms,
        digest=digest,
    )
    if header.name != name:
        raise _damaged(name, 0, f"its header belongs to a file named {header.name!r}")
    return header


def _read_chunks(file: File, name: str) -> Iterator[bytes]:
    end = file.size()
    offset, count, size = _HEADER_BYTES, 0, 0
    total = zlib.crc32(file.read_at(_CHECKSUM_AT, 4))
    while True:
        mark = file.read_at(offset, _CHUNK.size)
        if len(mark) < _CHUNK.size:
            raise _damaged(name, offset, "it ends without its trailer")
        chunk_bytes, checksum = _CHUNK.unpack(mark)
        if not chunk_bytes:
            break
        offset += _CHUNK.size
        # Check the size against the file before allocating memory for it.
        chunk = file.read_at(offset, chunk_bytes) if offset + chunk_bytes <= end else b""
        if not chunk or zlib.crc32(chunk) != checksum:
            raise _damaged(name, offset, f"chunk {count} does not match its checksum")
        offset += chunk_bytes
        count, size, total = count + 1, size + chunk_bytes, zlib.crc32(mark, total)
        yield chunk
    if file.read_at(offset, end) != _TRAILER.pack(0, count, size, total):
        raise _damaged(name, offset, "its trailer does not match what comes before it")


def _damaged(name: str, offset: int, problem: str) -> SnapshotDamagedError:
    return SnapshotDamagedError(
        f"snapshot {name!r} is damaged at offset {offset}: {problem}. It can be deleted if an older one"
        " is good, or if the journal is complete.",
        reason="SNAPSHOT_DAMAGED",
        details={"file": name, "offset": str(offset)},
    )
