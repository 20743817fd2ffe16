"""Replay: reads the frames of all segments in order and verifies each of them.

Invariant: the frames yielded are contiguous and linked from the first to the last. A frame that is not raises
JournalDamagedError and is never skipped.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.journal.disk import Disk
from holdfast.journal.errors import JournalDamagedError, JournalFailedError, PositionRemovedError
from holdfast.journal.frame import unmask
from holdfast.journal.port import Frame
from holdfast.journal.segment import SegmentHeader, read_header, segment_names
from holdfast.journal.survey import check_succession
from holdfast.journal.walk import FrameWalker


def replay_segments(
    disk: Disk,
    headers: Sequence[SegmentHeader],
    *,
    after: int,
    until: int,
    link: int | None = None,
) -> Iterator[Frame]:
    """Return the frames past `after` up to the one that ends at `until`, the end of the last segment of `headers`.

    A frame that contains `after` is yielded whole. Raises as `Journal.replay` does.
    """
    _check_range(headers, after, until)
    return _frames(disk, headers, _Range(after, until, link))


class _Range(NamedTuple):
    after: int
    until: int
    link: int | None


def _frames(disk: Disk, headers: Sequence[SegmentHeader], wanted: _Range) -> Iterator[Frame]:
    for header, following in zip(headers, (*headers[1:], None), strict=True):
        end = following.first_position - 1 if following else wanted.until
        if header.first_position - 1 == wanted.after:
            _check_link(header.link, wanted, header.name)
        if end <= wanted.after:
            continue
        try:
            file = disk.open(header.name)
            try:
                walker = FrameWalker(file, header)
                yield from _frames_of_one(walker, header, end, wanted)
            finally:
                file.close()
        except OSError as error:
            raise JournalFailedError(f"journal file {header.name!r} could not be read: {error}") from error
        if following:
            check_succession(walker, header.name, following)


def _frames_of_one(walker: FrameWalker, header: SegmentHeader, end: int, wanted: _Range) -> Iterator[Frame]:
    for frame, masked in walker.frames(end):
        last = walker.position - 1
        if last > wanted.after:
            body, version = unmask(masked, frame), header.digest_version
            yield Frame(frame.first_position, frame.count, frame.digest, body, frame.checksum, version)
        elif last == wanted.after:
            _check_link(frame.checksum, wanted, header.name)
    if walker.position != end + 1:
        problem = f"expected frames up to position {end}, but the frame here cannot be read"
        raise JournalDamagedError(header.name, walker.offset, walker.position, problem)


def _check_link(found: int, wanted: _Range, name: str) -> None:
    if wanted.link is not None and found != wanted.link:
        problem = "the frame that ends there belongs to another history"
        raise JournalDamagedError(name, 0, wanted.after, problem)


def read_sealed(disk: Disk, *, after: int = 0, link: int | None = None) -> Iterator[Frame]:
    """Yield the frames past `after` of all segments but the newest, which another process may be writing.

    The caller holds a pin at `after + 1`, taken before the call, so that no segment it needs is deleted.
    """
    headers = read_headers(disk)
    until = headers[-1].first_position - 1 if headers else 0
    if after >= until:
        return iter(())
    return replay_segments(disk, headers[:-1], after=after, until=until, link=link)


def read_headers(disk: Disk) -> list[SegmentHeader]:
    """Return the headers of all segments, oldest first."""
    headers: list[SegmentHeader] = []
    for name in segment_names(disk.names()):
        try:
            file = disk.open(name)
        except FileNotFoundError:
            # Removed since it was listed; the segments before it are removed too, because the oldest go first.
            headers.clear()
            continue
        try:
            headers.append(read_header(file, name))
        finally:
            file.close()
    return headers


def _check_range(headers: Sequence[SegmentHeader], after: int, until: int) -> None:
    first = headers[0].first_position if headers else 1
    if after + 1 < first:
        raise PositionRemovedError(
            f"positions {after + 1} to {first - 1} are no longer in the journal; a snapshot covers them",
            reason="POSITION_REMOVED",
        )
    if after > until:
        name = headers[-1].name if headers else ""
        raise JournalDamagedError(name, 0, after, f"the journal ends with position {until}, before the requested one")
