"""The journal: a durable, single-writer log of opaque frames in one directory. Format version 2.

A summary of the format; docs/internals/journal-format.md describes it in full, with all protocols.

    <first position>-<epoch>.seg   512-byte header, then frames, then reserved zeros
    MANIFEST                       newest segment, epoch, and a position known to be durable with its checksum
    snapshot-<position>.snap       the state at a position, in checksummed chunks
    <first position>-<epoch>.idx   index from job ids to frames; derived from the segment
    torn-<position>-<epoch>.bak    copy of a torn or damaged tail that was cut off
    pin-…, LOCK                    positions that readers need; lock of the process that has the journal open

    frame = magic 4 | body bytes u32 | first position u64 | count u32 | mask u8 | zeros 3 | digest u64
            | link u32 | body checksum u32 | header checksum u32 | masked body | trailer 4

- Each frame is one write and one sync; the next frame is written after that. So a valid frame proves that the frame
  before it was durable.
- A frame contains the checksum of the frame before it, a segment that of the last frame before the segment.
- No part of a frame within one 512-byte sector is all zeros, not even after one flipped bit. So a sector of
  zeros, or missing bytes, in the last frame mean that it never was durable: recovery cuts it and keeps a copy.
- Any other damage is refused with file, offset and position, and nothing is changed. If the last frame is damaged,
  the message names `holdfast journal repair DIR`. Any flipped bit in the last frame is refused in this way; a flipped
  bit before it is refused without a repair; one in the reserved zeros behind it is refused or cut. No frame is lost.
- Known limit: a durable last frame that later lost a sector, or its end, to zeros looks torn, unless the journal has
  rolled or was closed since.

THE STEPS TO CHANGE THE FORMAT are listed beside FORMAT_VERSION in version.py.

The modules, bottom up: disk (ports) and os_disk; version, frame, segment, manifest (bytes); walk, tail,
survey (reading and checking); index; recovery (cutting); replay; descriptors, space, chain, next_segment, file
(writing); memory; snapshot; pins; archive (the port of readers) and directory_archive.
"""

from holdfast.journal.archive import JournalArchive
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.disk import Disk, File
from holdfast.journal.errors import (
    DirectoryLockedError,
    JournalClosedError,
    JournalDamagedError,
    JournalError,
    JournalFailedError,
    JournalFullError,
    JournalVersionError,
    LeadershipLostError,
    PositionRemovedError,
    SnapshotDamagedError,
)
from holdfast.journal.file import FileJournal
from holdfast.journal.memory import MemoryJournal
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.pins import pin, pinned_position
from holdfast.journal.port import FRAME_OVERHEAD, Frame, Journal, JournalConfig, SegmentInfo
from holdfast.journal.recovery import RepairReport, repair
from holdfast.journal.replay import read_headers, read_sealed
from holdfast.journal.snapshot import (
    SnapshotHeader,
    list_snapshots,
    read_snapshot,
    read_snapshot_header,
    snapshot_name,
    write_snapshot,
)
from holdfast.journal.version import FORMAT_VERSION

__all__ = [
    "FORMAT_VERSION",
    "FRAME_OVERHEAD",
    "DirectoryArchive",
    "DirectoryLockedError",
    "Disk",
    "File",
    "FileJournal",
    "Frame",
    "Journal",
    "JournalArchive",
    "JournalClosedError",
    "JournalConfig",
    "JournalDamagedError",
    "JournalError",
    "JournalFailedError",
    "JournalFullError",
    "JournalVersionError",
    "LeadershipLostError",
    "MemoryJournal",
    "OsDisk",
    "PositionRemovedError",
    "RepairReport",
    "SegmentInfo",
    "SnapshotDamagedError",
    "SnapshotHeader",
    "list_snapshots",
    "pin",
    "pinned_position",
    "read_headers",
    "read_sealed",
    "read_snapshot",
    "read_snapshot_header",
    "repair",
    "snapshot_name",
    "write_snapshot",
]
