"""The index of jobs: the history of one job reads only the frames that name it, whatever the journal's size."""

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from holdfast.core import commands, events, history
from holdfast.core.commands import Decision, ReportRow
from holdfast.core.events import AnyEvent, Noted, RefusedReport, Reported, Revocation, Revoked, Ticked
from holdfast.core.history import Entry
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.lifecycle import DONE, QUEUED, RUNNING
from holdfast.core.model import NewJob, Note, Now, Result, Template
from holdfast.journal.disk import Disk, File, LockFile
from holdfast.journal.file import FileJournal
from holdfast.journal.index import PAGE_BYTES, index_name
from holdfast.journal.port import FRAME_OVERHEAD, JournalConfig
from holdfast.journal.replay import read_headers
from holdfast.ledger import time_travel
from holdfast.ledger.coordinator import Coordinator
from holdfast.ledger.job_index import IndexConfig, IndexKeeper, JobIndex, build_missing, names_in
from holdfast.ledger.journal_history import JournalHistory
from holdfast_lab.simulation.disk import SimDisk

SEGMENT_BYTES = 32_768
JOBS = 1_500
#: The header of a segment, which is read when one of its frames is.
SEGMENT_HEADER_BYTES = 512


class _CountedFile:
    def __init__(self, file: File, disk: "CountingDisk") -> None:
        self._file = file
        self._disk = disk

    def read_at(self, offset: int, size: int) -> bytes:
        data = self._file.read_at(offset, size)
        self._disk.bytes_read += len(data)
        return data

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


class CountingDisk:
    """A disk in memory that counts the bytes read."""

    def __init__(self) -> None:
        self.disk = SimDisk(random.Random(0))
        self.bytes_read = 0

    def open(self, name: str) -> File:
        return cast("File", _CountedFile(self.disk.open(name), self))

    def hold(self, name: str) -> LockFile:
        return self.disk.hold(name)

    def __getattr__(self, name: str) -> object:
        return getattr(self.disk, name)


def job_id(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-{number:012x}"


class Queue:
    """A ledger whose events are written to a journal, one frame each, and observed by an index."""

    def __init__(self, counted: CountingDisk, ledger: Ledger | None = None) -> None:
        self.counted = counted
        self.disk = cast("Disk", counted)
        config = JournalConfig(segment_bytes=SEGMENT_BYTES, extent_bytes=4_096)
        self.journal = FileJournal.open(self.disk, config, now_ms=1, new_cluster_id=bytes(16))
        self.ledger = ledger or Ledger(LedgerConfig())
        self.index = JobIndex(self.journal, self.disk)
        self.past = JournalHistory(self.journal, self.disk, self.index)
        self._now_ms = self.ledger.state.last_ms

    def do(self, command: commands.AnyCommand) -> object:
        self._now_ms += 1
        decision = self.ledger.decide(command, Now(self._now_ms, self._now_ms))
        assert isinstance(decision, Decision)
        if decision.event is not None:
            self.write([decision.event])
        return decision.reply

    def write(self, together: list[AnyEvent]) -> None:
        """Writes one frame."""
        for event in together:
            self.ledger.apply(event)
            self.index.applied(self.ledger.position, event, self.ledger)
        body = events.join([events.encode_one(event) for event in together])
        self.index.durable(self.journal.write(body, len(together), self.ledger.digest))

    def run_jobs(self, first: int, count: int) -> None:
        """Submits, grants and finishes each job."""
        for number in range(first, first + count):
            self.do(commands.Submit([Template("echo")], [NewJob(job_id(number), 0, bytes(300))]))
            lease = commands.GrantLeases("worker", frozenset({"echo"}), frozenset(), 1, 30_000)
            (granted,) = cast("list[commands.GrantedLease]", self.do(lease))
            self.do(commands.Report("worker", [ReportRow(granted.job_id, granted.token, DONE, b"output")]))

    def history(self, number: int) -> tuple[list[Entry], int]:
        """Returns the history of a job and the number of bytes read for it."""
        before = self.counted.bytes_read
        walk = self.past.history(job_id(number))
        found = [entry for piece in walk.take(1_000_000) for entry in piece]
        walk.close()
        return found, self.counted.bytes_read - before

    def truth(self, number: int) -> tuple[list[Entry], int]:
        """Returns the same history from a full scan, and the size of the frames that name the job."""
        name, size, found = job_id(number).encode(), 0, list[Entry]()
        for frame in self.journal.replay(self.journal.first_position - 1):
            size += FRAME_OVERHEAD + len(frame.body) if name in frame.body else 0
            found += time_travel.about([frame], job_id(number))
        return found, size

    def indexes(self) -> list[str]:
        return [name for name in self.counted.disk.names() if name.endswith(".idx")]


@pytest.fixture
def queue() -> Queue:
    """A queue with dozens of sealed segments."""
    queue = Queue(CountingDisk())
    queue.run_jobs(0, JOBS)
    assert len(queue.journal.segments()) > 30
    return queue


NUMBERS = (0, 1, JOBS // 2, JOBS - 1)


@pytest.mark.parametrize("number", NUMBERS)
def test_history_before_there_are_files_reads_the_frames_of_the_job_alone(queue: Queue, number: int) -> None:
    """The history of a job that this process has written reads only the frames of the job."""
    expected, frames_bytes = queue.truth(number)
    found, read = queue.history(number)
    assert found == expected
    assert [entry.what for entry in found] == ["submitted", "granted", "finished"]
    assert read <= frames_bytes + 2 * SEGMENT_HEADER_BYTES


@pytest.mark.parametrize("number", NUMBERS)
def test_history_by_files_reads_the_frames_of_the_job_and_one_page_a_segment(queue: Queue, number: int) -> None:
    """After a restart the history of a job reads its frames and one index page per segment."""
    sealed = len(queue.journal.segments())
    queue.journal.close()
    assert build_missing(queue.disk) == sealed - 1  # another process may write the newest segment
    again = Queue(queue.counted, queue.ledger)
    assert build_missing(again.disk) == 1
    again.run_jobs(JOBS, 1)
    expected, frames_bytes = again.truth(number)
    found, first_read = again.history(number)
    assert found == expected
    assert first_read <= frames_bytes + sealed * (PAGE_BYTES + 200)
    _, read = again.history(number)
    assert read <= frames_bytes + 2 * SEGMENT_HEADER_BYTES + sealed * PAGE_BYTES
    assert read < sum(info.bytes for info in again.journal.segments()) // 4
    assert [entry.what for entry in again.history(JOBS)[0]] == ["submitted", "granted", "finished"]


def test_missing_index_costs_a_scan_of_its_segment_and_nothing_else(queue: Queue) -> None:
    """If one index file is missing, only its segment is scanned."""
    build_missing(queue.disk)
    segments = queue.journal.segments()
    queue.index.forget([info.name for info in segments if info.is_sealed])
    queue.counted.disk.remove(index_name(segments[3].name))
    expected, frames_bytes = queue.truth(JOBS // 2)
    found, read = queue.history(JOBS // 2)
    assert found == expected
    assert segments[3].bytes <= read <= frames_bytes + segments[3].bytes + len(segments) * (PAGE_BYTES + 200) + 2_048


@pytest.mark.parametrize("at", [5, 100, -8])
def test_damaged_index_is_no_error(queue: Queue, at: int) -> None:
    """A damaged index file is removed and rebuilt, and the history is complete meanwhile."""
    build_missing(queue.disk)
    sealed = [info for info in queue.journal.segments() if info.is_sealed]
    queue.index.forget([info.name for info in sealed])
    files = queue.counted.disk.files()
    for info in sealed:
        name = index_name(info.name)
        queue.counted.disk.flip_bit(name, 8 * (at % len(files[name])))
    for number in NUMBERS:
        assert queue.history(number)[0] == queue.truth(number)[0]
    assert queue.index.is_wanting
    assert len(queue.indexes()) < len(sealed)
    build_missing(queue.disk)
    assert len(queue.indexes()) == len(sealed)
    assert queue.history(0)[0] == queue.truth(0)[0]


def test_index_that_began_late_does_not_hide_earlier_frames(queue: Queue) -> None:
    """Frames that were written before the index started are found by a scan."""
    queue.index = JobIndex(queue.journal, queue.disk)
    queue.past = JournalHistory(queue.journal, queue.disk, queue.index)
    queue.run_jobs(JOBS, 1)
    for number in (0, JOBS - 1, JOBS):
        assert queue.history(number)[0] == queue.truth(number)[0]


def test_memory_is_bounded(queue: Queue) -> None:
    """Above its limit the index drops the oldest segments from memory, and their jobs are still found."""
    queue.index = JobIndex(queue.journal, queue.disk, IndexConfig(entries_max=300))
    queue.past = JournalHistory(queue.journal, queue.disk, queue.index)
    queue.run_jobs(JOBS, 500)
    assert len(queue.index.held()) <= 4
    for number in (JOBS, JOBS + 499):
        assert queue.history(number)[0] == queue.truth(number)[0]


def test_frame_of_many_jobs_is_found_for_each(queue: Queue) -> None:
    """A frame with events of many jobs is found for each of them."""
    ids = [job_id(10_000 + number) for number in range(50)]
    at_ms = queue.ledger.state.last_ms + 1
    template = Template("other")
    queue.write([events.Created(at_ms, [template], [NewJob(one, 0, b"x")]) for one in ids])
    for number in (10_000, 10_049):
        found, read = queue.history(number)
        assert [entry.what for entry in found] == ["submitted"]
        assert found == queue.truth(number)[0]
        assert read <= queue.truth(number)[1] + SEGMENT_HEADER_BYTES


EVENTS: list[AnyEvent] = [
    events.Created(1, [Template("t")], [NewJob("a", 0), NewJob("b", 0)]),
    events.Granted(1, "w", 5, 1, ["a", "b"]),
    Revoked(1, "w", "lost", [Revocation(1, QUEUED, is_spent=True)], ["a"]),
    Reported(1, "w", [Result(1, DONE)], [RefusedReport("c", 2, "STALE_TOKEN")], ["a"]),
    events.CancelAccepted(1, "a", RUNNING, "why"),
    events.QueuedCanceled(1, ["a", "b"], "why"),
    Noted(1, "w", [Note("a", 1, 5, "half", ("line",))]),
    Ticked(1, "s", 1, "fired", 2, 0, Template("t"), NewJob("a", 0), "b", RUNNING),
    Ticked(1, "s", 1, "skipped", 2),
    events.Started(1, 1),
    events.Retired(1, 1, 1),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_index_knows_every_job_that_history_tells_of(event: AnyEvent) -> None:
    """The index finds every job that has an entry in the history of an event."""
    told = {entry.job_id.encode() for entry in history.entries(1, event)}
    assert names_in(events.join([events.encode_one(event)])) == told


def test_every_kind_of_event_is_looked_at() -> None:
    """Every kind of event is covered: those without an example name no jobs."""
    silent = {events.Extended, events.Evicted, events.QueueModeSet}
    silent |= {events.ScheduleSet, events.ScheduleDeleted, events.SchedulePaused}
    assert {type(event) for event in EVENTS} | silent == set(history._READERS)


class Maker:
    """Builds indexes at once, or fails."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.is_able = True
        self.starts = 0

    def start(self, done: Callable[[str], None]) -> None:
        self.starts += 1
        if self.is_able:
            build_missing(self._disk)
        done("" if self.is_able else "the maker failed")


def keeper_of(queue: Queue, config: IndexConfig) -> tuple[IndexKeeper, Maker]:
    queue.index = JobIndex(queue.journal, queue.disk, config)
    queue.past = JournalHistory(queue.journal, queue.disk, queue.index)
    maker, observers = Maker(queue.disk), list[object]()
    coordinator = cast("Coordinator", SimpleNamespace(observers=observers))
    keeper = IndexKeeper(coordinator, queue.journal, queue.disk, queue.index, maker)
    assert observers == [queue.index, keeper]
    return keeper, maker


def test_keeper_asks_for_indexes_once_they_are_worth_it() -> None:
    """The keeper requests index files once the sealed segments reach the limit, and then drops them from memory."""
    queue = Queue(CountingDisk())
    keeper, maker = keeper_of(queue, IndexConfig(unindexed_bytes=3 * SEGMENT_BYTES))
    for number in range(JOBS):
        queue.run_jobs(number, 1)
        keeper.durable(queue.journal.end_position)
    sealed = len(queue.journal.segments()) - 1
    assert maker.starts == sealed // 3
    assert len(queue.indexes()) == sealed // 3 * 3
    assert len(queue.index.held()) <= 4
    for number in NUMBERS:
        assert queue.history(number)[0] == queue.truth(number)[0]


def test_keeper_asks_again_for_an_index_that_was_of_no_use() -> None:
    """The keeper requests a rebuild after a reader found a damaged index, without waiting for the next segment."""
    queue = Queue(CountingDisk())
    keeper, maker = keeper_of(queue, IndexConfig(unindexed_bytes=1))
    queue.run_jobs(0, 200)
    keeper.durable(queue.journal.end_position)
    assert maker.starts == 1
    queue.counted.disk.flip_bit(queue.indexes()[0], 0)
    assert queue.history(0)[0] == queue.truth(0)[0]
    keeper.durable(queue.journal.end_position)
    assert maker.starts == 2
    assert len(queue.indexes()) == len(read_headers(queue.disk)) - 1


def test_failed_build_waits_for_the_next_segment() -> None:
    """After a failed build the keeper waits for the next segment."""
    queue = Queue(CountingDisk())
    keeper, maker = keeper_of(queue, IndexConfig(unindexed_bytes=1))
    maker.is_able = False
    for number in range(200):
        queue.run_jobs(number, 1)
        keeper.durable(queue.journal.end_position)
    assert maker.starts == len(queue.journal.segments()) - 1
    assert queue.history(0)[0] == queue.truth(0)[0]
