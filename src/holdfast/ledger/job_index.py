"""Index of the frames that name a job: a file beside each sealed segment, and memory for segments without a file.

Invariants:
- An index only gives the offsets of frames. The frames are read from the journal and verified; a segment whose index is
  missing or damaged is scanned in pieces. So an index affects the cost of an answer, but not its content.
- A separate process builds the indexes of sealed segments, from the segments alone: the coordinator neither decodes nor
  sorts for them.
- The memory for entries and for the tables of index files is limited.

Threads: the observers run on the coordinator's thread, `pieces` in any other.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice, pairwise

import msgspec

from holdfast.core import events
from holdfast.core.events import AnyEvent
from holdfast.core.history import jobs_of
from holdfast.core.ledger import Ledger
from holdfast.journal.disk import Disk
from holdfast.journal.errors import JournalError, JournalFailedError
from holdfast.journal.file import FileJournal
from holdfast.journal.index import IndexDamagedError, OpenIndex, SegmentIndex, build_index, index_name, read_frame
from holdfast.journal.pins import pin
from holdfast.journal.port import Frame, SegmentInfo
from holdfast.journal.replay import read_headers, replay_segments
from holdfast.journal.segment import read_header
from holdfast.journal.whole_write import remove_if_present
from holdfast.ledger.coordinator import Coordinator
from holdfast.ledger.snapshot_keeper import Builder

#: The number of frames that one step of a history reads.
_PIECE_FRAMES = 256


class IndexConfig(msgspec.Struct, frozen=True):
    """When indexes are built, and how much of them stays in memory."""

    #: Indexes are built when sealed segments without one reach this size; below it, a scan costs less than a process.
    unindexed_bytes: int = 4 << 20
    #: Entries in memory, eight bytes each; above it the oldest segment is dropped, and scanned until it has a file.
    entries_max: int = 4_000_000
    #: Tables of index files in memory; a segment of 64 MiB has at most 16 KiB.
    tables_bytes_max: int = 8 << 20


def name_of(job_id: str) -> bytes:
    """Returns the name of a job in an index."""
    return job_id.encode(errors="replace")


class JobIndex:
    """Finds the frames of a job. An observer of the coordinator."""

    def __init__(self, journal: FileJournal, disk: Disk, config: IndexConfig | None = None) -> None:
        self._journal = journal
        self._disk = disk
        self.config = config or IndexConfig()
        #: Events that are not durable yet.
        self._pending: list[AnyEvent] = []
        self._durable = journal.end_position
        #: The indexes of segments without an index file, oldest first.
        self._recent: dict[str, OpenIndex] = {}
        self._entries = 0
        self._tables: OrderedDict[str, SegmentIndex] = OrderedDict()
        self._tables_bytes = 0
        self._tables_lock = threading.Lock()
        #: Whether a damaged index file was removed since the last check.
        self.is_wanting = False
        newest = journal.segments()[-1]
        if newest.last_position >= newest.first_position:
            # Earlier frames of this segment are not indexed here, so it must be scanned.
            self._recent[newest.name] = OpenIndex(is_complete=False)

    # -- on the coordinator's thread

    def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
        """Keeps the event until its frame has been written."""
        self._pending.append(event)

    def durable(self, position: int) -> None:
        """Indexes the jobs of the last frame, which ends at this position."""
        segment, offset = self._journal.last_frame
        count, self._durable = position - self._durable, position
        names = {job_id for event in self._pending[:count] for job_id in jobs_of(event)}
        del self._pending[:count]
        index = self._recent.get(segment)
        if index is None:
            index = self._recent[segment] = OpenIndex()
        before = len(index)
        index.add(map(name_of, names), offset)
        self._entries += len(index) - before
        while self._entries > self.config.entries_max and len(self._recent) > 1:
            self._drop(next(iter(self._recent)))

    def bug(self, command: object, error: Exception) -> None:
        """Does nothing: a failed command has no event."""

    def forget(self, segments: Iterable[str]) -> None:
        """Drops segments that have an index file now, or were removed."""
        for segment in segments:
            self._drop(segment)

    def held(self) -> list[str]:
        """Returns the segments whose index is in memory."""
        return list(self._recent)

    def _drop(self, segment: str) -> None:
        index = self._recent.pop(segment, None)
        self._entries -= len(index) if index is not None else 0

    # -- in any thread

    def pieces(self, job_id: str) -> Iterator[list[Frame]]:
        """Yields the durable frames that may name a job, in order and in pieces; the caller has pinned the journal.

        Raises the errors of `Journal.replay`.
        """
        name = name_of(job_id)
        for info in self._journal.segments():
            if info.last_position >= info.first_position:
                frames = self._frames(info, name)
                while piece := list(islice(frames, _PIECE_FRAMES)):
                    yield piece

    def _frames(self, info: SegmentInfo, name: bytes) -> Iterator[Frame]:
        try:
            yield from self._frames_there(info, name)
        except FileNotFoundError as error:
            # A removal that began before the pin has deleted it; removed segments are no longer part of the history.
            if info.last_position >= self._journal.first_position:
                raise JournalFailedError(f"journal file {info.name!r} could not be read: {error}") from error
        except OSError as error:
            raise JournalFailedError(f"journal file {info.name!r} could not be read: {error}") from error

    def _frames_there(self, info: SegmentInfo, name: bytes) -> Iterator[Frame]:
        offsets = self._offsets(info, name)
        if offsets is not None and not offsets:
            return
        file = self._disk.open(info.name)
        try:
            header = read_header(file, info.name)
            after = info.first_position - 1
            try:
                for offset in offsets if offsets is not None else ():
                    frame = read_frame(file, header, offset)
                    if frame.last_position > info.last_position:
                        return
                    after = frame.last_position
                    yield frame
            except IndexDamagedError:
                self._discard(info.name)
                offsets = None
            if offsets is None:
                yield from replay_segments(self._disk, [header], after=after, until=info.last_position)
        finally:
            file.close()

    def _offsets(self, info: SegmentInfo, name: bytes) -> list[int] | None:
        """Returns the offsets of the frames that may contain the name; None if the segment must be scanned."""
        recent = self._recent.get(info.name)
        if recent is not None:
            return recent.find(name) if recent.is_complete else None
        try:
            table = self._table(info)
            return table.find(self._disk, name)
        except FileNotFoundError:
            return None
        except IndexDamagedError:
            self._discard(info.name)
            return None

    def _table(self, info: SegmentInfo) -> SegmentIndex:
        with self._tables_lock:
            table = self._tables.get(info.name)
            if table is not None:
                self._tables.move_to_end(info.name)
                return table
        table = SegmentIndex(self._disk, info.name)
        if table.last_position < info.last_position:
            raise IndexDamagedError(f"the index of {info.name!r} ends before it does", reason="INDEX_DAMAGED")
        with self._tables_lock:
            self._forget_table(info.name)
            self._tables[info.name] = table
            self._tables_bytes += table.table_bytes
            while self._tables_bytes > self.config.tables_bytes_max:
                self._forget_table(next(iter(self._tables)))
        return table

    def _forget_table(self, segment: str) -> None:
        table = self._tables.pop(segment, None)
        self._tables_bytes -= table.table_bytes if table is not None else 0

    def _discard(self, segment: str) -> None:
        """Removes a damaged index; the keeper has another one built."""
        with self._tables_lock:
            self._forget_table(segment)
        with suppress(OSError):
            remove_if_present(self._disk, index_name(segment))
        self.is_wanting = True


class IndexKeeper:
    """Decides when indexes are built. An observer of the coordinator."""

    def __init__(
        self, coordinator: Coordinator, journal: FileJournal, disk: Disk, index: JobIndex, maker: Builder
    ) -> None:
        self._journal = journal
        self._disk = disk
        self._index = index
        self._maker = maker
        self._newest = ""
        self._is_making = False
        coordinator.observers += [index, self]

    def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
        """Does nothing before the event is durable."""

    def bug(self, command: object, error: Exception) -> None:
        """Does nothing: the keeper does not handle bugs."""

    def durable(self, position: int) -> None:
        """Checks the segments after a new one was begun, or after a reader removed a damaged index."""
        newest = self._journal.last_frame[0]
        if newest != self._newest or self._index.is_wanting:
            self._newest, self._index.is_wanting = newest, False
            self._look()

    def _look(self) -> None:
        # An observer must not raise. If the directory could not be read, the next check reads it again.
        with suppress(JournalError, OSError):
            missing = self._missing()
            if not self._is_making and sum(info.bytes for info in missing) >= self._index.config.unindexed_bytes:
                self._is_making = True
                self._maker.start(self._made)

    def _missing(self) -> list[SegmentInfo]:
        """Returns the sealed segments without an index file; drops indexes in memory that are no longer needed."""
        names = set(self._disk.names())
        segments = self._journal.segments()
        missing = [info for info in segments if info.is_sealed and index_name(info.name) not in names]
        needed = {info.name for info in missing} | {info.name for info in segments if not info.is_sealed}
        self._index.forget([held for held in self._index.held() if held not in needed])
        return missing

    def _made(self, problem: str) -> None:
        """Ends a build. A failed one is repeated after the next segment; until then memory or a scan is used."""
        self._is_making = False
        with suppress(JournalError, OSError):
            self._missing()


def build_missing(disk: Disk) -> int:
    """Builds the missing indexes of sealed segments, oldest first; returns their number.

    Each segment is pinned while it is read. A segment that cannot be read completely gets no index.
    """
    headers, made = read_headers(disk), 0
    for header, following in pairwise(headers):
        last_position = following.first_position - 1
        with pin(disk, header.first_position):
            try:
                if _is_indexed(disk, header.name, last_position):
                    continue
                build_index(disk, header, last_position, names_in)
                made += 1
            except (FileNotFoundError, IndexDamagedError):
                continue
    return made


def _is_indexed(disk: Disk, segment: str, last_position: int) -> bool:
    try:
        return SegmentIndex(disk, segment).last_position >= last_position
    except (FileNotFoundError, IndexDamagedError):
        return False


def names_in(body: bytes) -> set[bytes]:
    """Returns the names of the jobs in the events of a frame."""
    return {name_of(job_id) for event in events.decode(body) for job_id in jobs_of(event)}
