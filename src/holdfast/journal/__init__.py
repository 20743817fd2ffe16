"""The journal: a durable, single-writer log of opaque frames in one directory. Format version 2.

The format in short; in full, with every protocol, in docs/internals/journal-format.md.

    <first position>-<epoch>.seg   512-byte header, then frames, then reserved zeros
    MANIFEST                       newest segment, epoch, and a position known durable with its checksum
    snapshot-<position>.snap       a state, in checksummed chunks
    <first position>-<epoch>.idx   which frames name a job; derived
    torn-<position>-<epoch>.bak    what was cut off; pin-…: what readers need; LOCK: who has it open

    frame = magic 4 | body bytes u32 | first position u64 | count u32 | mask u8 | zeros 3 | digest u64
            | link u32 | body checksum u32 | header checksum u32 | masked body | trailer 4

- One frame, one write, one sync; the next frame only after that. So a valid frame proves the one before it.
- Frames carry the checksum of the frame before, segments that of the last frame before them.
- No part of a frame within one 512-byte sector is all zeros, not even after one flipped bit. So a sector of
  zeros in the last frame means that it never was durable: it is cut, and a copy kept. So are missing bytes.
- Any other damage is refused, with file, offset and position, and nothing is changed. In the last frame the
  message names `holdfast journal repair DIR`. One flipped bit in the last frame, whichever, is refused thus;
  anywhere before it, refused outright; in the reserved zeros behind it, refused or cut; no frame is lost.
- What remains: a durable last frame that later lost a sector, or its end, to zeros looks torn, unless the
  journal has rolled or was closed since.

THE STEPS TO CHANGE THE FORMAT stand beside FORMAT_VERSION in version.py.

The parts, from the bottom: disk (ports) and os_disk; version, frame, segment, manifest (bytes); walk, tail,
survey (reading, and verdicts); index; recovery (cutting); replay; descriptors, space, chain, next_segment, file
(writing); memory; snapshot; pins.
"""

from holdfast.journal.disk import Disk, File
from holdfast.journal.errors import (
    DirectoryLockedError,
    JournalClosedError,
    JournalDamagedError,
    JournalError,
    JournalFailedError,
    JournalFullError,
    JournalVersionError,
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
    "DirectoryLockedError",
    "Disk",
    "File",
    "FileJournal",
    "Frame",
    "Journal",
    "JournalClosedError",
    "JournalConfig",
    "JournalDamagedError",
    "JournalError",
    "JournalFailedError",
    "JournalFullError",
    "JournalVersionError",
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
