"""The index of a segment: finds the frames that contain a name with a few reads, however large the journal is.

A derived file beside a sealed segment, `<first position>-<epoch>.idx`. Layout, big-endian:

    preamble 16 (HFINDEXS) | cluster id 16 | epoch u64 | first position u64 | last position u64 | entries u64
    | table checksum u32 | header checksum u32
    then the table, per page: first entry u64 | checksum of the page u32
    then the entries, sorted, 512 to a page: key u28 | offset u36

An entry means that the frame at this offset contains a name with this key: the low 28 bits of the CRC-32 of the name.
Two names may share a key, so the reader of a frame checks whether it contains the name.

Invariants:
- An index gets its final name only when it is complete. It is optional: if it is missing, damaged or of another
  version, the segment is scanned instead, and the next build replaces the index.
- An index belongs to a sealed segment, which never changes, and is removed before that segment is.
"""

import re
import struct
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from contextlib import suppress

from holdfast.journal.disk import Disk, File
from holdfast.journal.errors import JournalError
from holdfast.journal.frame import FRAME_OVERHEAD, HEADER_BYTES, decode_header, stored_body, unmask
from holdfast.journal.port import Frame
from holdfast.journal.segment import SegmentHeader, segment_names
from holdfast.journal.version import PREAMBLE_BYTES, preamble, preamble_problem
from holdfast.journal.walk import FrameWalker
from holdfast.journal.whole_write import TEMPORARY_SUFFIX, remove_if_present, write_fully

INDEX_MAGIC = b"HFINDEXS"
INDEX_SUFFIX = ".idx"
_SEGMENT_SUFFIX = ".seg"
_NAME = re.compile(rf"\d{{20}}-\d{{10}}\.idx({re.escape(TEMPORARY_SUFFIX)})?")

_FIELDS = struct.Struct(">16sQQQQI")
_CHECKSUM_AT = PREAMBLE_BYTES + _FIELDS.size
_HEADER_BYTES = _CHECKSUM_AT + 4
_ROW = struct.Struct(">QI")
_OFFSET_BITS = 36
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1
_KEY_MASK = (1 << 64 - _OFFSET_BITS) - 1
_ENTRY_BYTES = 8
_PAGE_ENTRIES = 512
PAGE_BYTES = _PAGE_ENTRIES * _ENTRY_BYTES
#: Entries of the segment being written that are sorted at once: this takes a fraction of a millisecond.
_BLOCK_ENTRIES = 4_096
_IS_LITTLE = struct.pack("=H", 1) == struct.pack("<H", 1)

#: Returns the names in the body of a frame.
NamesOf = Callable[[bytes], Iterable[bytes]]


class IndexDamagedError(JournalError):
    """An index is damaged; the segment itself is intact."""


def index_name(segment: str) -> str:
    """Return the name of the index of a segment."""
    return segment.removesuffix(_SEGMENT_SUFFIX) + INDEX_SUFFIX


def stray_indexes(names: list[str]) -> list[str]:
    """Return those of `names` that are indexes, finished or not, of segments that do not exist."""
    kept = {index_name(segment) for segment in segment_names(names)}
    return [name for name in names if _NAME.fullmatch(name) and name not in kept]


class OpenIndex:
    """An index in memory, for a segment without an index file; eight bytes for each name in each frame.

    `add` belongs to one thread; `find` may be called from others meanwhile.
    """

    __slots__ = ("_blocks", "_newest", "is_complete")

    def __init__(self, *, is_complete: bool = True) -> None:
        self._blocks: list[array[int]] = []
        self._newest: array[int] = array("Q")
        #: False if a frame is missing, or if the offset of a frame exceeds the maximum of an entry.
        self.is_complete = is_complete

    def __len__(self) -> int:
        return len(self._blocks) * _BLOCK_ENTRIES + len(self._newest)

    def add(self, names: Iterable[bytes], offset: int) -> None:
        """Add the names of the frame at this offset."""
        if offset > _OFFSET_MASK:
            self.is_complete = False
            return
        newest = self._newest
        newest.extend({(zlib.crc32(name) & _KEY_MASK) << _OFFSET_BITS | offset for name in names})
        while len(newest) >= _BLOCK_ENTRIES:
            self._blocks.append(array("Q", sorted(newest[:_BLOCK_ENTRIES])))
            self._newest = newest = newest[_BLOCK_ENTRIES:]

    def find(self, name: bytes) -> list[int]:
        """Return the offsets of the frames that may contain this name, in order."""
        key = zlib.crc32(name) & _KEY_MASK
        # Search the newest entries first: an entry that moves to a block meanwhile is found twice, never missed.
        found = {entry & _OFFSET_MASK for entry in self._newest[:] if entry >> _OFFSET_BITS == key}
        for block in self._blocks[:]:
            found.update(_offsets(block, key))
        return sorted(found)


def _offsets(entries: "array[int]", key: int) -> list[int]:
    first = bisect_left(entries, key << _OFFSET_BITS)
    last = bisect_right(entries, key << _OFFSET_BITS | _OFFSET_MASK, first)
    return [entry & _OFFSET_MASK for entry in entries[first:last]]


class SegmentIndex:
    """The header and table of an index file. A search reads one page, or more for a frequent name."""

    __slots__ = ("_checksums", "_firsts", "_name", "_pages_at", "last_position", "table_bytes")

    last_position: int
    table_bytes: int

    def __init__(self, disk: Disk, segment: str) -> None:
        """Read the index of a segment; raise IndexDamagedError if it is damaged, FileNotFoundError if there is none."""
        self._name = index_name(segment)
        file = disk.open(self._name)
        try:
            self._read(file, segment)
        finally:
            file.close()

    def _read(self, file: File, segment: str) -> None:
        head = file.read_at(0, _HEADER_BYTES)
        # An index of an unknown version is treated as damaged, so that it is rebuilt.
        with suppress(JournalError):
            if preamble_problem(head, INDEX_MAGIC, self._name) or len(head) < _HEADER_BYTES:
                raise self._damaged()
            if zlib.crc32(head[:_CHECKSUM_AT]) != int.from_bytes(head[_CHECKSUM_AT:], "big"):
                raise self._damaged()
            _, epoch, first, self.last_position, count, checksum = _FIELDS.unpack_from(head, PREAMBLE_BYTES)
            table = file.read_at(_HEADER_BYTES, -(-count // _PAGE_ENTRIES) * _ROW.size)
            if zlib.crc32(table) != checksum or not segment.startswith(f"{first:020d}-{epoch:010d}"):
                raise self._damaged()
            rows = list(_ROW.iter_unpack(table))
            self._firsts = array("Q", [row[0] for row in rows])
            self._checksums = array("I", [row[1] for row in rows])
            self._pages_at = _HEADER_BYTES + len(table)
            self.table_bytes = len(head) + len(table)
            return
        raise self._damaged()

    def find(self, disk: Disk, name: bytes) -> list[int]:
        """Return the offsets of the frames that may contain this name, in order; raise as the constructor does."""
        key = zlib.crc32(name) & _KEY_MASK
        # Entries of the key may begin in the page before the first page that begins with this key or a higher one.
        first = max(0, bisect_left(self._firsts, key << _OFFSET_BITS) - 1)
        last = bisect_right(self._firsts, key << _OFFSET_BITS | _OFFSET_MASK)
        found: list[int] = []
        if first >= last:
            return found
        file = disk.open(self._name)
        try:
            for page in range(first, last):
                found += _offsets(self._page(file, page), key)
        finally:
            file.close()
        return found

    def _page(self, file: File, page: int) -> "array[int]":
        data = file.read_at(self._pages_at + page * PAGE_BYTES, PAGE_BYTES)
        if zlib.crc32(data) != self._checksums[page] or len(data) % _ENTRY_BYTES:
            raise self._damaged()
        return _swapped(array("Q", data))

    def _damaged(self) -> IndexDamagedError:
        return IndexDamagedError(f"the index {self._name!r} is damaged; it will be rebuilt", reason="INDEX_DAMAGED")


def build_index(disk: Disk, header: SegmentHeader, last_position: int, names_of: NamesOf) -> int:
    """Build the index of a sealed segment, replacing an existing one; return the number of entries.

    Raises IndexDamagedError, without writing, if the segment cannot be read to its end or is too large to index.
    """
    found = _entries(disk, header, last_position, names_of)
    entries = _swapped(array("Q", sorted(found))).tobytes()
    pages = [entries[at : at + PAGE_BYTES] for at in range(0, len(entries), PAGE_BYTES)]
    table = b"".join(_ROW.pack(int.from_bytes(page[:_ENTRY_BYTES], "big"), zlib.crc32(page)) for page in pages)
    fields = (header.cluster_id, header.epoch, header.first_position, last_position, len(found), zlib.crc32(table))
    head = preamble(INDEX_MAGIC) + _FIELDS.pack(*fields)
    name = index_name(header.name)
    temporary = name + TEMPORARY_SUFFIX
    remove_if_present(disk, temporary)
    file = disk.create(temporary)
    try:
        write_fully(file, 0, head + zlib.crc32(head).to_bytes(4, "big") + table + entries)
        # Sync before the rename, so that a power cut cannot leave the final name without its contents.
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, name)
    return len(found)


def _entries(disk: Disk, header: SegmentHeader, last_position: int, names_of: NamesOf) -> set[int]:
    found: set[int] = set()
    file = disk.open(header.name)
    try:
        walker = FrameWalker(file, header)
        for frame, masked in walker.frames(last_position):
            offset = walker.offset - frame.frame_bytes
            names = names_of(unmask(masked, frame))
            found.update((zlib.crc32(name) & _KEY_MASK) << _OFFSET_BITS | offset for name in names)
    finally:
        file.close()
    if walker.position != last_position + 1 or walker.offset > _OFFSET_MASK:
        raise IndexDamagedError(f"segment {header.name!r} cannot be indexed", reason="INDEX_IMPOSSIBLE")
    return found


def _swapped(entries: "array[int]") -> "array[int]":
    """Convert between the byte order of the file and that of the machine, in place."""
    if _IS_LITTLE:
        entries.byteswap()
    return entries


def read_frame(file: File, header: SegmentHeader, offset: int) -> Frame:
    """Return the verified frame at an offset from an index; raise IndexDamagedError if there is none."""
    head = file.read_at(offset, HEADER_BYTES)
    frame = decode_header(head, 0, header.salt)
    if frame is not None:
        data = head + file.read_at(offset + HEADER_BYTES, frame.body_bytes + FRAME_OVERHEAD - HEADER_BYTES)
        masked = stored_body(data, 0, frame)
        if masked is not None:
            body, version = unmask(masked, frame), header.digest_version
            return Frame(frame.first_position, frame.count, frame.digest, body, frame.checksum, version)
    raise IndexDamagedError(f"segment {header.name!r} has no frame at offset {offset}", reason="INDEX_DAMAGED")
