"""The past of a journal, read from its directory."""

from pathlib import Path

import pytest

from holdfast.core import commands, events
from holdfast.core.commands import AnyCommand, Decision, ReportRow
from holdfast.core.events import AnyEvent, Created, Granted
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.lifecycle import DONE
from holdfast.core.model import NewJob, Now, Template
from holdfast.core.overview import overview
from holdfast.errors import NotFoundError
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.file import FileJournal
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.port import FRAME_OVERHEAD, JournalConfig
from holdfast.ledger import time_travel
from holdfast.ledger.snapshots import take_snapshot

LEASE = commands.GrantLeases("w1", frozenset({"echo"}), frozenset(), 1, 1_000)


class Recorder:
    """A ledger whose events are written to a journal, one frame each, a millisecond apart."""

    def __init__(self, folder: Path, config: JournalConfig = JournalConfig()) -> None:  # noqa: B008 - frozen
        self.disk = OsDisk(folder)
        self.archive = DirectoryArchive(self.disk)
        self.journal = FileJournal.open(self.disk, config, now_ms=1, new_cluster_id=bytes(16))
        self.ledger = Ledger(LedgerConfig())
        self.now_ms = 1_000

    def do(self, *script: AnyCommand) -> None:
        for command in script:
            self.now_ms += 1
            decision = self.ledger.decide(command, Now(self.now_ms, self.now_ms))
            assert isinstance(decision, Decision)
            assert decision.event is not None
            self.write(decision.event)

    def write(self, event: AnyEvent, digest: int | None = None) -> None:
        self.ledger.apply(event)
        self.write_unapplied(event, self.ledger.digest if digest is None else digest)

    def write_unapplied(self, event: AnyEvent, digest: int) -> None:
        body = events.join([events.encode_one(event)])
        assert self.journal.reserve(len(body) + FRAME_OVERHEAD)
        self.journal.write(body, 1, digest, self.now_ms)


def submit(job_id: str) -> commands.Submit:
    return commands.Submit([Template("echo")], [NewJob(job_id, 0, b"payload")])


def done(job_id: str, token: int) -> commands.Report:
    return commands.Report("w1", [ReportRow(job_id, token, DONE, b"out")])


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    """Job a has finished, job b was canceled, and a late report of a was refused."""
    recorder = Recorder(tmp_path)
    late = commands.Report("w2", [ReportRow("a", 7, DONE)])
    recorder.do(submit("a"), LEASE, submit("b"), done("a", 1), late, commands.Cancel("b", "no more"))
    return recorder


def past(position: int) -> time_travel.Moment:
    return lambda at, _event: at > position


def test_history_tells_all_that_happened_to_a_job(recorder: Recorder) -> None:
    """Each entry of a job's history names position, worker, token and reason, also for refused reports."""
    found = time_travel.history(recorder.archive, "a")
    assert [(entry.position, entry.what, entry.state) for entry in found] == [
        (1, "submitted", "QUEUED"),
        (2, "granted", "RUNNING"),
        (4, "finished", "DONE"),
        (5, "report refused", ""),
    ]
    assert (found[1].worker, found[1].token, found[3].worker, found[3].reason) == ("w1", 1, "w2", "ALREADY_FINISHED")


def test_history_of_an_unknown_job_says_how_far_it_looked(recorder: Recorder) -> None:
    """The error for an unknown job names the first position of the journal."""
    with pytest.raises(NotFoundError, match="reaches back to position 1"):
        time_travel.history(recorder.archive, "nobody")


def test_any_past_state_can_be_replayed(recorder: Recorder) -> None:
    """The replayed state at a position equals the state when that position was the last."""
    then = overview(time_travel.state_at(recorder.archive, past(3)))
    assert (then.position, then.states["RUNNING"], then.states["QUEUED"]) == (3, 1, 1)
    assert [(lease.job_id, lease.worker, lease.token) for lease in then.leases] == [("a", "w1", 1)]
    assert [(queue.name, queue.ready, queue.running) for queue in then.queues] == [("default", 1, 1)]


def test_state_at_a_time_holds_all_up_to_it(recorder: Recorder) -> None:
    """A moment can be given as a time or as a position."""
    state = time_travel.state_at(recorder.archive, lambda _position, event: event.at_ms > 1_002)
    assert state.position == 2


def test_journal_can_be_read_while_its_server_writes(recorder: Recorder) -> None:
    """Reading takes no lock: the reader sees all durable events, and the writer continues."""
    before = time_travel.verify(recorder.archive, lambda _position, _end: None)
    recorder.do(submit("c"))
    after = time_travel.verify(recorder.archive, lambda _position, _end: None)
    assert (before.end_position, after.end_position, after.digest) == (6, 7, recorder.ledger.digest)


def test_sound_journal_is_proven(recorder: Recorder) -> None:
    """The proof of a valid journal names frames, jobs and digest, and the progress reaches the end."""
    seen: list[tuple[int, int]] = []
    proof = time_travel.verify(recorder.archive, lambda position, end: seen.append((position, end)))
    assert (proof.frames, proof.jobs, proof.digest) == (6, 2, recorder.ledger.digest)
    assert seen[-1] == (6, 6)


def test_event_that_cannot_have_happened_is_named_by_its_position(recorder: Recorder) -> None:
    """A grant of a job that has ended is found by its position, although every checksum is right."""
    recorder.write_unapplied(Granted(2_000, "w1", 1_000, 2, ["a"]), digest=0)
    with pytest.raises(time_travel.BrokenInvariantError, match="position 7 "):
        time_travel.verify(recorder.archive, lambda _position, _end: None)


def test_wrong_digest_is_found(recorder: Recorder) -> None:
    """A frame whose digest differs from the replayed state is refused."""
    event = Created(2_000, [Template("echo")], [NewJob("c", 0)])
    recorder.write(event, digest=recorder.ledger.digest ^ 1)
    with pytest.raises(Exception, match="ends at position 7 gives digest"):
        time_travel.verify(recorder.archive, lambda _position, _end: None)


def test_history_before_the_oldest_snapshot_is_said_to_be_gone(tmp_path: Path) -> None:
    """After segments were removed, positions that a snapshot covers can be replayed, and earlier ones are refused."""
    recorder = Recorder(tmp_path, JournalConfig(segment_bytes=512, extent_bytes=4_096))
    for number in range(30):
        recorder.do(submit(f"job-{number}"))
    covered = take_snapshot(recorder.archive, LedgerConfig())
    recorder.do(submit("late"))
    recorder.journal.remove_segments(covered)
    state = time_travel.state_at(recorder.archive, past(31))
    assert state.digest == recorder.ledger.digest
    with pytest.raises(NotFoundError, match=f"back to position {covered} only"):
        time_travel.state_at(recorder.archive, past(3))
    assert time_travel.verify(recorder.archive, lambda _position, _end: None).end_position == 31
