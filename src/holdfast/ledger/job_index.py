"""Which frames name a job: an index beside each sealed segment, and one in memory for what has no file yet.

Invariants:
- An index only says where to look. What is found there is read from the journal and verified; a segment whose index is
  missing or damaged is scanned in pieces. So no answer depends on an index, only its cost does.
- Indexes of sealed segments are made by a process of their own, from the segment alone: the coordinator neither decodes
  nor sorts for them.
- What is held in memory is bounded, as are the tables of the files that were read lately.

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
from holdfast.ledger.snapshots import Maker

#: How many frames one step of a history looks into.
_PIECE_FRAMES = 256


class IndexConfig(msgspec.Struct, frozen=True):
    """When indexes are made, and what is held of them."""

    #: Sealed segments without an index are scanned until they amount to this: a process costs more than reading that.
    unindexed_bytes: int = 4 << 20
    #: Names in frames held in memory, eight bytes each; beyond it the oldest segment is scanned until it has an index.
    entries_max: int = 4_000_000
    #: Tables of index files held in memory: 16 KiB for a segment of 64 MiB, at most.
    tables_bytes_max: int = 8 << 20


def name_of(job_id: str) -> bytes:
    """What an index knows a job by."""
    return job_id.encode(errors="replace")


class JobIndex:
    """Finds the frames of a job. An observer of the loop."""

    def __init__(self, journal: FileJournal, disk: Disk, config: IndexConfig | None = None) -> None:
        self._journal = journal
        self._disk = disk
        self.config = config or IndexConfig()
        #: Not durable yet.
        self._pending: list[AnyEvent] = []
        self._durable = journal.end_position
        #: Segments that have no file yet, oldest first.
        self._recent: dict[str, OpenIndex] = {}
        self._entries = 0
        self._tables: OrderedDict[str, SegmentIndex] = OrderedDict()
        self._tables_bytes = 0
        self._tables_lock = threading.Lock()
        #: A file was found to be of no use, and removed.
        self.is_wanting = False
        newest = journal.segments()[-1]
        if newest.last_position >= newest.first_position:
            # Frames were written before this index could see them: their segment is known in part, which is worse than
            # not at all.
            self._recent[newest.name] = OpenIndex(is_complete=False)

    # -- on the coordinator's thread

    def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
        """Keeps the event until its frame is known."""
        self._pending.append(event)

    def durable(self, position: int) -> None:
        """The frame that ends here was written last: its jobs are indexed."""
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
        """Nothing happened."""

    def forget(self, segments: Iterable[str]) -> None:
        """These segments have a file now, or are gone."""
        for segment in segments:
            self._drop(segment)

    def held(self) -> list[str]:
        """The segments that are known from memory."""
        return list(self._recent)

    def _drop(self, segment: str) -> None:
        index = self._recent.pop(segment, None)
        self._entries -= len(index) if index is not None else 0

    # -- in any thread

    def pieces(self, job_id: str) -> Iterator[list[Frame]]:
        """The durable frames that may name a job, in order, some at a time; the caller has pinned the journal.

        Raises what `Journal.replay` raises.
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
            # A removal that had begun before the pin: what is gone is no longer history.
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
        """Where the frames are that may hold the name; None if only a scan can tell."""
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
        """An index is of no use: it is removed, and the keeper sees to another."""
        with self._tables_lock:
            self._forget_table(segment)
        with suppress(OSError):
            remove_if_present(self._disk, index_name(segment))
        self.is_wanting = True


class IndexKeeper:
    """Decides when indexes are made. An observer of the loop."""

    def __init__(
        self, coordinator: Coordinator, journal: FileJournal, disk: Disk, index: JobIndex, maker: Maker
    ) -> None:
        self._journal = journal
        self._disk = disk
        self._index = index
        self._maker = maker
        self._newest = ""
        self._is_making = False
        coordinator.observers += [index, self]

    def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
        """Nothing to do before it is durable."""

    def bug(self, command: object, error: Exception) -> None:
        """Not the keeper's concern."""

    def durable(self, position: int) -> None:
        """Looks at the segments when a new one was begun, or when a reader found an index to be of no use."""
        newest = self._journal.last_frame[0]
        if newest != self._newest or self._index.is_wanting:
            self._newest, self._index.is_wanting = newest, False
            self._look()

    def _look(self) -> None:
        # An observer must not raise. A directory that could not be read is read again at the next look.
        with suppress(JournalError, OSError):
            missing = self._missing()
            if not self._is_making and sum(info.bytes for info in missing) >= self._index.config.unindexed_bytes:
                self._is_making = True
                self._maker.start(self._made)

    def _missing(self) -> list[SegmentInfo]:
        """The sealed segments without an index; memory no longer holds what the others hold."""
        names = set(self._disk.names())
        segments = self._journal.segments()
        missing = [info for info in segments if info.is_sealed and index_name(info.name) not in names]
        needed = {info.name for info in missing} | {info.name for info in segments if not info.is_sealed}
        self._index.forget([held for held in self._index.held() if held not in needed])
        return missing

    def _made(self, problem: str) -> None:
        """A failure waits for the next segment: until then there is memory, and after a restart a scan."""
        self._is_making = False
        with suppress(JournalError, OSError):
            self._missing()


def build_missing(disk: Disk) -> int:
    """Makes the indexes that sealed segments lack, oldest first; returns how many.

    Each segment is pinned while it is read. One that cannot be read whole gets none.
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
    """The names of the jobs that the events of a frame say something of."""
    return {name_of(job_id) for event in events.decode(body) for job_id in jobs_of(event)}
