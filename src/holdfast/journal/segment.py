"""Segments: the files that contain the frames, linked into a chain by their headers.

Layout of the header, one sector that is never written again:

    preamble 16 | digest version u32 | cluster id 16 | epoch u64 | first position u64
    | link u32 (checksum of the last frame before this segment) | created ms u64 | zeros | checksum u32

Invariant: a segment gets its final name only when its header is durable, so a damaged header is never an interrupted
creation.
"""

import re
import struct
import zlib
from dataclasses import dataclass

from holdfast.journal.disk import Disk, File
from holdfast.journal.errors import JournalDamagedError, JournalFailedError
from holdfast.journal.frame import SECTOR_BYTES
from holdfast.journal.version import (
    FORMAT_VERSION,
    PREAMBLE_BYTES,
    check_digest_version,
    preamble,
    preamble_problem,
    version_of,
)
from holdfast.journal.whole_write import TEMPORARY_SUFFIX, remove_if_present, write_fully

SEGMENT_MAGIC = b"HFSEGMNT"
HEADER_BYTES = SECTOR_BYTES
CLUSTER_ID_BYTES = 16

_FIELDS = struct.Struct(">I16sQQIQ")
_CHECKSUM_AT = HEADER_BYTES - 4
_NAME = re.compile(r"(\d{20})-(\d{10})\.seg")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentHeader:
    """The header of a segment."""

    digest_version: int
    cluster_id: bytes
    epoch: int
    first_position: int
    link: int
    created_ms: int
    # The salt depends on it, so a header keeps the version with which it was written.
    format_version: int = FORMAT_VERSION

    @property
    def name(self) -> str:
        return segment_name(self.first_position, self.epoch)

    def encode(self) -> bytes:
        fields = _FIELDS.pack(
            self.digest_version, self.cluster_id, self.epoch, self.first_position, self.link, self.created_ms
        )
        data = (preamble(SEGMENT_MAGIC, self.format_version) + fields).ljust(_CHECKSUM_AT, b"\0")
        return data + zlib.crc32(data).to_bytes(4, "big")

    @property
    def salt(self) -> int:
        """The start value of the header checksums of this segment's frames."""
        return zlib.crc32(self.encode()[:_CHECKSUM_AT])


def segment_name(first_position: int, epoch: int) -> str:
    """Return the name of a segment. Names sort by position; the suffix is not `.log`, which clean-up scripts delete."""
    return f"{first_position:020d}-{epoch:010d}.seg"


def segment_names(names: list[str]) -> list[str]:
    """Return those of `names` that are segments, in the order of the journal."""
    return sorted(name for name in names if _NAME.fullmatch(name))


def read_header(file: File, name: str) -> SegmentHeader:
    """Return the header of the segment `name`, or raise JournalDamagedError."""
    data = file.read_at(0, HEADER_BYTES)
    match = _NAME.fullmatch(name)
    assert match, f"expected the name of a segment, got {name!r}"
    position = int(match[1])
    problem = preamble_problem(data, SEGMENT_MAGIC, name)
    if not problem and len(data) < HEADER_BYTES:
        problem = f"the file ends after {len(data)} bytes, inside its header"
    if not problem and zlib.crc32(data[:_CHECKSUM_AT]) != int.from_bytes(data[_CHECKSUM_AT:], "big"):
        problem = "the checksum of its header does not match"
    if problem:
        raise JournalDamagedError(name, 0, position, problem)
    digest_version, cluster_id, epoch, first, link, created_ms = _FIELDS.unpack_from(data, PREAMBLE_BYTES)
    check_digest_version(digest_version, name)
    header = SegmentHeader(
        digest_version=digest_version,
        cluster_id=cluster_id,
        epoch=epoch,
        first_position=first,
        link=link,
        created_ms=created_ms,
        format_version=version_of(data),
    )
    if header.name != name:
        raise JournalDamagedError(name, 0, position, f"its header belongs to a file named {header.name!r}")
    return header


def create_segment(disk: Disk, header: SegmentHeader, size: int) -> File:
    """Create a segment with `size` bytes reserved in total; when this returns it is durable under its name.

    An OSError means that the journal is unchanged. A JournalFailedError means that the name may or may not exist
    after a crash, so nothing more can be written to the segment before it.
    """
    temporary = header.name + TEMPORARY_SUFFIX
    remove_if_present(disk, temporary)
    return finish_segment(disk, disk.create(temporary), temporary, header, size)


def finish_segment(disk: Disk, file: File, temporary: str, header: SegmentHeader, size: int) -> File:
    """Make the new file `temporary` a segment; see `create_segment`."""
    try:
        file.reserve(max(size, HEADER_BYTES))
        write_fully(file, 0, header.encode())
        file.sync()
        disk.rename(temporary, header.name)
    except OSError:
        file.close()
        remove_if_present(disk, temporary)
        raise
    _make_name_durable(disk, file, header.name)
    return file


def _make_name_durable(disk: Disk, file: File, name: str) -> None:
    try:
        disk.sync_dir()
    except OSError as error:
        file.close()
        raise JournalFailedError(f"the directory could not be synced after creating {name!r}: {error}") from error
