"""The journal in a directory.

Invariants:
- `write` returns only after its frame is durable, and starts only after the frame before it is durable.
- Each opening begins a segment; the epoch is durable in its header before `open` returns.
- After the first failed write or sync the disk is not written again: the kernel has dropped the data that it could not
  write, so a second sync would succeed although the data is lost.

Threads: `write` and `close` are called by one thread at a time (the writer). Meanwhile the loop's thread may call
`reserve`, `release`, `segments` and the properties, and the housekeeping thread `remove_segments`. The shared state is
the numbers of Space, which has its own lock, the segments of Chain, which are replaced as a whole, and a few integers
that only the writer assigns, after the data they describe is durable.
"""

import errno
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Self

from holdfast.journal.chain import SegmentChain
from holdfast.journal.descriptors import is_no_descriptor
from holdfast.journal.directory_marks import refuse_marked
from holdfast.journal.disk import Disk, File
from holdfast.journal.errors import (
    JournalClosedError,
    JournalError,
    JournalFailedError,
    JournalForbiddenError,
    JournalFullError,
)
from holdfast.journal.frame import encode
from holdfast.journal.manifest import Manifest, write_manifest
from holdfast.journal.next_segment import NextSegment
from holdfast.journal.pins import pinned_position
from holdfast.journal.port import Frame, JournalConfig, SegmentInfo
from holdfast.journal.recovery import recover
from holdfast.journal.replay import replay_segments
from holdfast.journal.segment import CLUSTER_ID_BYTES, HEADER_BYTES, SegmentHeader, create_segment
from holdfast.journal.space import Space
from holdfast.journal.survey import Survey
from holdfast.journal.whole_write import is_no_space, is_passing, write_fully


class FileJournal:
    """A journal that survives power cuts. Created by `open`."""

    def __init__(self, disk: Disk, config: JournalConfig, file: File, chain: SegmentChain, found: Survey) -> None:
        self._disk = disk
        self._config = config
        self._file = file
        self._chain = chain
        self._salt = chain.header.salt
        self._space = Space(file, end=HEADER_BYTES, allocated=HEADER_BYTES, extent_bytes=config.extent_bytes)
        self._roll_at = config.segment_bytes
        self._next = NextSegment(disk)
        self._prepare_at = config.segment_bytes // 2
        self._end_position = found.end_position
        self._end_checksum = found.end_checksum
        self._last_frame = (chain.header.name, 0)
        self._failure: JournalError | None = None

    @classmethod
    def open(
        cls,
        disk: Disk,
        config: JournalConfig,
        *,
        now_ms: int,
        new_cluster_id: bytes,
        verify_after: int | Callable[[], int] = 0,
    ) -> Self:
        """Lock the directory, recover the journal, and begin a new epoch.

        `new_cluster_id` names the journal if there is none yet. `verify_after` is the position of a snapshot
        that the caller will start from; segments before it are not read. A damaged journal is refused and not
        changed.
        """
        assert len(new_cluster_id) == CLUSTER_ID_BYTES, f"expected {CLUSTER_ID_BYTES} bytes of cluster id"
        try:
            refuse_marked(disk)
            disk.lock()
            try:
                return cls._open_locked(disk, config, now_ms, new_cluster_id, verify_after)
            except BaseException:
                disk.unlock()
                raise
        except OSError as error:
            raise _not_opened(error) from error

    @classmethod
    def _open_locked(
        cls,
        disk: Disk,
        config: JournalConfig,
        now_ms: int,
        new_cluster_id: bytes,
        verify_after: int | Callable[[], int],
    ) -> Self:
        found = recover(disk, verify_after=verify_after() if callable(verify_after) else verify_after)
        cluster_id = found.manifest.cluster_id if found.manifest else new_cluster_id
        if found.manifest is None:
            # Written before the first segment, so that segments without a manifest are always damage.
            write_manifest(disk, _empty_manifest(cluster_id))
        header = SegmentHeader(
            digest_version=config.digest_version,
            cluster_id=cluster_id,
            epoch=found.epoch + 1,
            first_position=found.end_position + 1,
            link=found.end_checksum,
            created_ms=now_ms,
        )
        file = create_segment(disk, header, HEADER_BYTES)
        chain = SegmentChain(disk, found, header)
        try:
            chain.begin(found)
        except OSError:
            file.close()
            raise
        return cls(disk, config, file, chain, found)

    @property
    def cluster_id(self) -> bytes:
        return self._chain.header.cluster_id

    @property
    def epoch(self) -> int:
        return self._chain.header.epoch

    @property
    def first_position(self) -> int:
        return self._chain.first_position

    @property
    def end_position(self) -> int:
        return self._end_position

    @property
    def end_checksum(self) -> int:
        return self._end_checksum

    @property
    def last_frame(self) -> tuple[str, int]:
        """The segment and the offset of the last frame written, for an index; offset 0 before the first frame."""
        return self._last_frame

    def replay(self, after: int = 0, *, link: int | None = None) -> Iterator[Frame]:
        self._refuse_if_unusable()
        # Read the end before the headers, so that the headers cover it.
        until = self._end_position
        headers = [header for header in self._chain.headers() if header.first_position <= until + 1]
        return replay_segments(self._disk, headers, after=after, until=until, link=link)

    def reserve(self, size: int, *, spare: int = 0) -> bool:
        self._refuse_if_unusable()
        try:
            # On a full disk, the space of the preallocated next segment can still be used.
            return self._space.grant(size, spare) or (self._next.give_up() and self._space.grant(size, spare))
        except OSError as error:
            raise self._fail(error) from error

    def release(self, size: int) -> None:
        self._space.give_back(size)

    def write(self, body: bytes, count: int, digest: int, now_ms: int | None = None) -> int:
        self._refuse_if_unusable()
        try:
            # Do not roll an empty segment: the next one would have the same name.
            if self._space.end >= self._roll_at and self._end_position >= self._chain.header.first_position:
                self._roll(now_ms)
            self._append(body, count, digest)
            self._space.extend_ahead()
            if self._space.end >= self._prepare_at:
                self._prepare()
        except OSError as error:
            raise self._fail(error) from error
        except JournalFailedError as error:
            self._failure = error
            raise
        return self._end_position

    def segments(self) -> list[SegmentInfo]:
        self._refuse_if_unusable()
        return self._chain.infos(end_position=self._end_position, end=self._space.end)

    def remove_segments(self, before: int) -> list[str]:
        self._refuse_if_unusable()
        try:
            try:
                pinned = pinned_position(self._disk)
            except OSError as error:
                if is_no_descriptor(error):
                    return []  # the pins cannot be read at the moment
                raise
            limit = before if pinned is None else min(before, pinned - 1)
            removed = []
            while name := self._chain.remove_oldest(limit):
                removed.append(name)
        except OSError as error:
            raise self._fail(error) from error
        return removed

    def close(self) -> None:
        if isinstance(self._failure, JournalClosedError):
            return
        try:
            if self._failure is None:
                self._close_cleanly()
        except OSError as error:
            raise self._fail(error) from error
        finally:
            self._failure = JournalClosedError("the journal is closed")
            self._next.close()
            self._file.close()
            self._disk.unlock()

    def _append(self, body: bytes, count: int, digest: int) -> None:
        offset = self._space.end
        first = self._end_position + 1
        frame = encode(
            body,
            first_position=first,
            count=count,
            digest=digest,
            link=self._end_checksum,
            salt=self._salt,
            offset=offset,
        )
        if not self._space.take(len(frame.data)):
            raise JournalFullError(f"no space for a frame of {len(frame.data)} bytes", reason="JOURNAL_FULL")
        write_fully(self._file, offset, frame.data)
        self._file.sync()
        self._last_frame = (self._chain.header.name, offset)
        self._end_checksum = frame.checksum
        self._end_position = first + count - 1

    def _prepare(self) -> None:
        """Create the file of the next segment; if there is no space or descriptor for it, retry after some frames."""
        is_ready = self._next.prepare(self._space.room_wanted()[0])
        step = min(self._config.segment_bytes, self._config.extent_bytes) // 8
        self._prepare_at = self._space.end + (self._config.segment_bytes if is_ready else step)

    def _roll(self, now_ms: int | None) -> None:
        """Switch to a new segment, or keep this one for now if there is no space or descriptor for another."""
        first = self._end_position + 1
        created_ms = self._chain.header.created_ms if now_ms is None else now_ms
        header = replace(self._chain.header, first_position=first, link=self._end_checksum, created_ms=created_ms)
        file = self._create_roomy(header)
        old_end = self._space.end
        if file is not None and not self._space.move(file, end=HEADER_BYTES, allocated=file.size()):
            self._discard(file, header.name)
            file = None
        if file is None:
            # Do not retry at every frame: each attempt creates a file.
            self._roll_at = old_end + min(self._config.segment_bytes, self._config.extent_bytes) // 8
            return
        self._seal(header, file, old_end)

    def _create_roomy(self, header: SegmentHeader) -> File | None:
        """Create a segment with at least as much space as this one has; None if there is no space or descriptor."""
        for room in self._space.room_wanted():
            size = HEADER_BYTES + room
            try:
                return self._next.take(header, size) or create_segment(self._disk, header, size)
            except OSError as error:
                if not is_passing(error):
                    raise
        return None

    def _discard(self, file: File, name: str) -> None:
        """Remove a new segment, durably, because the next frames are written to the one before it."""
        file.close()
        self._disk.remove(name)
        self._disk.sync_dir()

    def _seal(self, header: SegmentHeader, file: File, old_end: int) -> None:
        # No sync: if the truncation is lost, only zeros remain, and they are ignored.
        self._file.truncate(old_end)
        self._file.close()
        self._file, self._salt = file, header.salt
        self._roll_at = self._config.segment_bytes
        self._prepare_at = self._roll_at // 2
        self._chain.seal(header, end=old_end)

    def _close_cleanly(self) -> None:
        self._next.give_up()
        self._file.truncate(self._space.end)
        self._file.sync()
        self._chain.finish(end_position=self._end_position, end_checksum=self._end_checksum)

    def _fail(self, error: OSError) -> JournalFailedError:
        failure = JournalFailedError(
            f"the journal stopped, and it is unknown what is durable: {error}", reason="JOURNAL_FAILED"
        )
        self._failure = failure
        return failure

    def _refuse_if_unusable(self) -> None:
        if self._failure is not None:
            raise type(self._failure)(self._failure.message, reason=self._failure.reason)


def _empty_manifest(cluster_id: bytes) -> Manifest:
    return Manifest(cluster_id=cluster_id, newest_first_position=0, epoch=0, mark_position=0, mark_checksum=0)


def _not_opened(error: OSError) -> JournalError:
    problem = f"the journal could not be opened: {error}"
    if is_no_space(error):
        return JournalFullError(f"{problem}; free some space and start again")
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return JournalForbiddenError(f"{problem}; run this as a user with write access to the directory")
    return JournalFailedError(f"{problem}; check the disk, then start again")
