"""Reads the frames of one segment in order, and records where and why the walk ended.

Invariant: every frame yielded has a valid header, body and trailer, the expected position and the checksum of the frame
before it. The walk ends at the first frame for which this does not hold; it never skips a frame.
"""

from collections.abc import Iterator

from holdfast.journal.disk import File
from holdfast.journal.frame import HEADER_BYTES, FrameHeader, decode_header, stored_body
from holdfast.journal.segment import HEADER_BYTES as SEGMENT_HEADER_BYTES
from holdfast.journal.segment import SegmentHeader

# One read returns many frames, but fits into a processor's cache.
_CHUNK_BYTES = 1024 * 1024


class FrameWalker:
    """Reads a segment from its start. `offset`, `position` and `link` always describe the next frame."""

    __slots__ = ("_data", "_data_offset", "_file", "_salt", "link", "offset", "position", "stop_header")

    def __init__(self, file: File, segment: SegmentHeader) -> None:
        self._file = file
        self._salt = segment.salt
        self._data = b""
        self._data_offset = SEGMENT_HEADER_BYTES
        self.offset = SEGMENT_HEADER_BYTES
        self.position = segment.first_position
        self.link = segment.link
        # The undamaged header of the frame at which the walk ended, if it has one.
        self.stop_header: FrameHeader | None = None

    @property
    def salt(self) -> int:
        return self._salt

    @property
    def is_linked(self) -> bool:
        """Whether the header at which the walk ended has the expected position and link; True if there is no header."""
        header = self.stop_header
        return header is None or (header.first_position == self.position and header.link == self.link)

    def frames(self, until: int | None = None) -> Iterator[tuple[FrameHeader, bytes]]:
        """Yield header and masked body of each frame, up to the one that ends at position `until`."""
        while until is None or self.position <= until:
            header = self._header()
            if header is None or header.first_position != self.position or header.link != self.link:
                break
            masked = stored_body(self._data, self.offset - self._data_offset, header)
            if masked is None:
                break
            self.offset += header.frame_bytes
            self.position += header.count
            self.link = header.checksum
            self.stop_header = None
            yield header, masked

    def _header(self) -> FrameHeader | None:
        """Return the next header, and read as much of its frame as the file contains."""
        at = self.offset - self._data_offset
        header = decode_header(self._data, at, self._salt)
        if header is None or len(self._data) - at < header.frame_bytes:
            self._read(HEADER_BYTES)
            header = decode_header(self._data, 0, self._salt)
            if header is not None and len(self._data) < header.frame_bytes:
                self._read(header.frame_bytes)
        self.stop_header = header
        return header

    def _read(self, size: int) -> None:
        self._data = self._file.read_at(self.offset, max(size, _CHUNK_BYTES))
        self._data_offset = self.offset
