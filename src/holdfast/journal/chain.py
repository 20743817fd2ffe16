"""The chain of segments of an open journal, and its manifest.

Invariants:
- The manifest never names a segment that has been removed: it is updated before the removal.
- Segments are removed oldest first, each removal durable before the next, so that no crash leaves a gap. Files that
  were created earlier are durable before a removal is.

Threads: the writer's thread calls `seal`, the housekeeping thread calls `remove_oldest`. Both take one lock, which is
held during writes to the disk. Readers take no lock: the segments are one tuple that is replaced as a whole.
"""

import threading

from holdfast.journal.disk import Disk
from holdfast.journal.index import index_name
from holdfast.journal.manifest import Manifest, write_manifest
from holdfast.journal.port import SegmentInfo
from holdfast.journal.segment import SegmentHeader
from holdfast.journal.survey import Survey
from holdfast.journal.whole_write import is_passing, remove_if_present


class SegmentChain:
    """Sealed segments, oldest first, and the header of the one being written."""

    def __init__(self, disk: Disk, found: Survey, header: SegmentHeader) -> None:
        self._disk = disk
        pairs = zip(found.headers, found.segment_infos(), strict=True)
        sealed = tuple((past, info) for past, info in pairs if not _is_empty(info))
        #: The sealed segments, oldest first, and the header of the one being written.
        self._segments = (sealed, header)
        self._is_manifest_behind = False
        self._lock = threading.Lock()

    @property
    def header(self) -> SegmentHeader:
        return self._segments[1]

    @property
    def _sealed(self) -> tuple[tuple[SegmentHeader, SegmentInfo], ...]:
        return self._segments[0]

    @property
    def first_position(self) -> int:
        sealed, header = self._segments
        return sealed[0][0].first_position if sealed else header.first_position

    def headers(self) -> list[SegmentHeader]:
        sealed, header = self._segments
        return [*(header for header, _ in sealed), header]

    def infos(self, *, end_position: int, end: int) -> list[SegmentInfo]:
        """Describe all segments; the arguments are the end of the one being written."""
        sealed, header = self._segments
        active = _info(header, last_position=end_position, size=end, is_sealed=False)
        return [*(info for _, info in sealed), active]

    def begin(self, found: Survey) -> None:
        """Record the new segment, then remove the empty segments of earlier openings."""
        write_manifest(self._disk, self._manifest())
        for info in found.segment_infos():
            if _is_empty(info):
                # So that a crash loop leaves no files; the newer header keeps the epoch.
                self._disk.remove(info.name)

    def seal(self, following: SegmentHeader, *, end: int) -> None:
        """Switch to the durable segment `following`; the one before it has `end` bytes."""
        with self._lock:
            info = _info(self.header, last_position=following.first_position - 1, size=end, is_sealed=True)
            self._segments = ((*self._sealed, (self.header, info)), following)
            self._record(self._manifest())

    def remove_oldest(self, limit: int) -> str:
        """Remove the oldest sealed segment if it ends at or before `limit`; return its name, or ""."""
        with self._lock:
            if not self._sealed or self._sealed[0][1].last_position > limit:
                return ""
            if self._is_manifest_behind and not self._record(self._manifest()):
                return ""
            name = self._sealed[0][1].name
            # Make the name of the snapshot that replaces the segment durable before the segment is removed.
            self._disk.sync_dir()
            self._segments = (self._sealed[1:], self.header)  # before the removal, for readers
            remove_if_present(self._disk, index_name(name))
            self._disk.remove(name)
            self._disk.sync_dir()
            return name

    def finish(self, *, end_position: int, end_checksum: int) -> None:
        """Record the exact end of the journal."""
        with self._lock:
            self._record(self._marked(end_position, end_checksum))

    def _manifest(self) -> Manifest:
        """Make a manifest whose mark is the last frame before the segment being written."""
        return self._marked(self.header.first_position - 1, self.header.link)

    def _marked(self, position: int, checksum: int) -> Manifest:
        return Manifest(
            cluster_id=self.header.cluster_id,
            newest_first_position=self.header.first_position,
            epoch=self.header.epoch,
            mark_position=position,
            mark_checksum=checksum,
        )

    def _record(self, manifest: Manifest) -> bool:
        """Replace the manifest; return False and keep the older one if no space or descriptor is left."""
        try:
            write_manifest(self._disk, manifest)
        except OSError as error:
            if not is_passing(error):
                raise
            self._is_manifest_behind = True
            return False
        self._is_manifest_behind = False
        return True


def _info(header: SegmentHeader, *, last_position: int, size: int, is_sealed: bool) -> SegmentInfo:
    return SegmentInfo(
        name=header.name,
        first_position=header.first_position,
        last_position=last_position,
        epoch=header.epoch,
        bytes=size,
        is_sealed=is_sealed,
        created_ms=header.created_ms,
    )


def _is_empty(info: SegmentInfo) -> bool:
    return info.last_position < info.first_position
