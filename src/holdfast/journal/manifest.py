"""The manifest: a small file that records the minimum contents of the journal.

The segments alone do not reveal that the newest of them is missing, or that complete frames are missing at the end. The
manifest does: it names the newest segment and contains a mark, a position known to be durable with the checksum of its
frame. It is replaced as a whole at every opening, roll and clean close.

Invariant: the manifest is never ahead of the segments. It is written after the data it describes is durable, so a crash
in between leaves an older manifest, which is allowed; a manifest ahead of the segments is damage.
"""

import struct
import zlib
from dataclasses import dataclass

from holdfast.journal.disk import Disk
from holdfast.journal.errors import REBUILD, JournalDamagedError
from holdfast.journal.segment import segment_name
from holdfast.journal.version import PREAMBLE_BYTES, preamble, preamble_problem
from holdfast.journal.whole_write import read_whole, replace_file

MANIFEST_NAME = "MANIFEST"
MANIFEST_MAGIC = b"HFMANIFS"

_FIELDS = struct.Struct(">16sQQQI")
_CHECKSUM_AT = PREAMBLE_BYTES + _FIELDS.size
MANIFEST_BYTES = _CHECKSUM_AT + 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """State known to be durable. `newest_first_position` is 0 while there is no segment."""

    cluster_id: bytes
    newest_first_position: int
    epoch: int
    mark_position: int
    mark_checksum: int

    @property
    def newest_name(self) -> str:
        return segment_name(self.newest_first_position, self.epoch)

    def encode(self) -> bytes:
        data = preamble(MANIFEST_MAGIC) + _FIELDS.pack(
            self.cluster_id, self.newest_first_position, self.epoch, self.mark_position, self.mark_checksum
        )
        return data + zlib.crc32(data).to_bytes(4, "big")


def write_manifest(disk: Disk, manifest: Manifest) -> None:
    replace_file(disk, MANIFEST_NAME, manifest.encode())


def read_manifest(disk: Disk) -> Manifest | None:
    """Return the manifest, None if there is none; raise JournalDamagedError if it is damaged."""
    if MANIFEST_NAME not in disk.names():
        return None
    data = read_whole(disk, MANIFEST_NAME)
    problem = preamble_problem(data, MANIFEST_MAGIC, MANIFEST_NAME)
    if not problem and len(data) != MANIFEST_BYTES:
        problem = f"it must be {MANIFEST_BYTES} bytes, got {len(data)}"
    if not problem and zlib.crc32(data[:_CHECKSUM_AT]) != int.from_bytes(data[_CHECKSUM_AT:], "big"):
        problem = "its checksum does not match"
    if problem:
        raise JournalDamagedError(MANIFEST_NAME, 0, 0, problem, advice=REBUILD)
    cluster_id, newest, epoch, position, checksum = _FIELDS.unpack_from(data, PREAMBLE_BYTES)
    return Manifest(
        cluster_id=cluster_id,
        newest_first_position=newest,
        epoch=epoch,
        mark_position=position,
        mark_checksum=checksum,
    )
