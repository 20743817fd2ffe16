"""Survey: reads and checks the journal in a directory without changing it.

Invariants:
- A journal that is refused is not changed.
- Only the newest segment may end in anything other than frames and zeros: a segment is created after the one before it
  is complete, or cut, and durable.
"""

from dataclasses import dataclass
from itertools import pairwise

from holdfast.journal.disk import Disk
from holdfast.journal.errors import CUT, REBUILD, RESTORE, JournalDamagedError
from holdfast.journal.manifest import MANIFEST_NAME, Manifest, read_manifest
from holdfast.journal.port import SegmentInfo
from holdfast.journal.segment import SegmentHeader, read_header, segment_names
from holdfast.journal.tail import Tail, TailVerdict, judge
from holdfast.journal.walk import FrameWalker

SNAPSHOT_SUFFIX = ".snap"


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The contents of the disk. `tail` is that of the newest segment, None when there is no segment."""

    manifest: Manifest | None
    headers: tuple[SegmentHeader, ...]
    sizes: tuple[int, ...]
    tail: Tail | None = None
    # The offset of the last good frame of the newest segment, or of the tail if there is no frame.
    last_offset: int = 0
    end_position: int = 0
    end_checksum: int = 0
    # The checksum found at the manifest's mark; None if no frame ends there.
    mark_checksum: int | None = None

    @property
    def newest(self) -> str:
        return self.headers[-1].name if self.headers else ""

    @property
    def epoch(self) -> int:
        """The highest epoch of this directory."""
        return max([header.epoch for header in self.headers] + ([self.manifest.epoch] if self.manifest else [0]))

    @property
    def is_end_marked(self) -> bool:
        """Whether the manifest marks the end as durable, as after a clean close."""
        return self.manifest is not None and self.manifest.mark_position == self.end_position

    def segment_infos(self) -> list[SegmentInfo]:
        """Describe the segments as found; the newest counts as sealed, because it is not written again."""
        ends = [header.first_position - 1 for header in self.headers[1:]] + [self.end_position]
        return [
            SegmentInfo(
                name=header.name,
                first_position=header.first_position,
                last_position=last,
                epoch=header.epoch,
                bytes=size,
                is_sealed=True,
                created_ms=header.created_ms,
            )
            for header, last, size in zip(self.headers, ends, self.sizes, strict=False)
        ]


def survey(disk: Disk, *, verify_after: int = 0) -> Survey:
    """Read the journal. Raises JournalDamagedError for damage, except in the last frame, which `tail` describes.

    Of segments that end at or before `verify_after` only the headers are checked, for a caller that has a
    snapshot at that position and will not read them.
    """
    return survey_with(disk, read_manifest(disk), verify_after=verify_after)


def survey_with(disk: Disk, manifest: Manifest | None, *, verify_after: int = 0) -> Survey:
    """Read the journal with a manifest that the caller has read or rebuilt; see `survey`."""
    names = disk.names()
    headers, sizes = _read_headers(disk, segment_names(names))
    _check_completeness(manifest, headers, names)
    _check_order(manifest, headers)
    for header, following in pairwise(headers):
        if following.first_position - 1 > verify_after:
            _verify_sealed(disk, header, following)
    if not headers:
        return Survey(manifest=manifest, headers=(), sizes=())
    return _survey_newest(disk, manifest, headers, sizes)


def refuse_damage(found: Survey) -> None:
    """Raise JournalDamagedError unless the journal ends clean or torn, at or past the manifest's mark."""
    tail, mark = found.tail, found.manifest
    if tail is None or mark is None:
        return
    position = found.end_position + 1
    if tail.verdict in (TailVerdict.DAMAGED, TailVerdict.FOLLOWED):
        advice = CUT if tail.verdict is TailVerdict.DAMAGED else RESTORE
        raise JournalDamagedError(found.newest, tail.offset, position, tail.problem, advice=advice)
    if found.end_position < mark.mark_position:
        raise JournalDamagedError(
            found.newest,
            tail.offset,
            position,
            f"the journal ends here, but position {mark.mark_position} is known to have been durable",
            advice=CUT if tail.verdict is TailVerdict.TORN else RESTORE,
        )
    if found.mark_checksum != mark.mark_checksum:
        problem = f"the frame that ends at position {mark.mark_position} does not match the manifest"
        raise JournalDamagedError(found.newest, tail.offset, mark.mark_position, problem)


def _read_headers(disk: Disk, names: list[str]) -> tuple[list[SegmentHeader], list[int]]:
    headers, sizes = [], []
    for name in names:
        file = disk.open(name)
        try:
            headers.append(read_header(file, name))
            sizes.append(file.size())
        finally:
            file.close()
    return headers, sizes


def _check_completeness(manifest: Manifest | None, headers: list[SegmentHeader], names: list[str]) -> None:
    if manifest is None:
        if headers or any(name.endswith(SNAPSHOT_SUFFIX) for name in names):
            advice = REBUILD if headers else RESTORE
            problem = "it is missing, but other files of the journal exist"
            raise JournalDamagedError(MANIFEST_NAME, 0, 0, problem, advice=advice)
        return
    if manifest.newest_first_position and manifest.newest_name not in {header.name for header in headers}:
        first = manifest.newest_first_position
        raise JournalDamagedError(manifest.newest_name, 0, first, "this segment is missing")


def _check_order(manifest: Manifest | None, headers: list[SegmentHeader]) -> None:
    for header in headers:
        if manifest and header.cluster_id != manifest.cluster_id:
            raise JournalDamagedError(header.name, 0, header.first_position, "it belongs to another journal")
    for before, header in pairwise(headers):
        if header.epoch < before.epoch:
            problem = f"its epoch {header.epoch} is below {before.epoch}, that of the segment before it"
            raise JournalDamagedError(header.name, 0, header.first_position, problem)


def _verify_sealed(disk: Disk, header: SegmentHeader, following: SegmentHeader) -> None:
    """Verify a segment that has a successor: it must end exactly where that begins, followed only by zeros."""
    file = disk.open(header.name)
    try:
        walker = FrameWalker(file, header)
        for _ in walker.frames():
            pass
        tail = judge(file, walker)
    finally:
        file.close()
    if tail.verdict is not TailVerdict.CLEAN:
        problem = f"{tail.problem}, and a later segment follows, so it was durable once"
        raise JournalDamagedError(header.name, walker.offset, walker.position, problem)
    check_succession(walker, header.name, following)


def check_succession(walker: FrameWalker, name: str, following: SegmentHeader) -> None:
    """Raise JournalDamagedError unless the walk over the segment `name` ended where `following` begins."""
    if walker.position != following.first_position:
        problem = f"it ends with position {walker.position - 1}, but the next one is {following.name!r}"
        raise JournalDamagedError(name, walker.offset, walker.position, problem)
    if walker.link != following.link:
        problem = f"its last checksum is not the one that {following.name!r} links to"
        raise JournalDamagedError(name, walker.offset, walker.position, problem)


def _survey_newest(disk: Disk, manifest: Manifest | None, headers: list[SegmentHeader], sizes: list[int]) -> Survey:
    mark = manifest.mark_position if manifest else 0
    mark_checksum = next((header.link for header in headers if header.first_position - 1 == mark), None)
    file = disk.open(headers[-1].name)
    try:
        walker = FrameWalker(file, headers[-1])
        last_offset = walker.offset
        for frame, _ in walker.frames():
            last_offset = walker.offset - frame.frame_bytes
            if walker.position - 1 == mark:
                mark_checksum = frame.checksum
        tail = judge(file, walker)
    finally:
        file.close()
    return Survey(
        manifest=manifest,
        headers=tuple(headers),
        sizes=tuple(sizes),
        tail=tail,
        last_offset=last_offset,
        end_position=walker.position - 1,
        end_checksum=walker.link,
        mark_checksum=mark_checksum,
    )
