"""Recovery, snapshots and time travel read every engine through the port `JournalArchive`."""

from itertools import pairwise

from holdfast.core import commands, events
from holdfast.core.commands import Decision
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.model import NewJob, Now, Template
from holdfast.journal.archive import JournalArchive
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.memory import MemoryJournal
from holdfast.journal.port import FRAME_OVERHEAD, Journal
from holdfast.ledger import time_travel
from holdfast.ledger.recovery import restore
from holdfast.ledger.snapshots import take_snapshot
from tests.unit.journal.memory_archive import MemoryArchive
from tests.unit.journal.workload import CLUSTER_ID, empty_disk, open_journal

JOBS = 40
LEASE = commands.GrantLeases("w1", frozenset({"echo"}), frozenset(), 1, 1_000)


def fill(journal: Journal, ledger: Ledger, first: int, count: int) -> None:
    """Submits jobs and grants each, one event a frame."""
    for number in range(first, first + count):
        for command in (commands.Submit([Template("echo")], [NewJob(f"job-{number}", 0, b"p" * 50)]), LEASE):
            now_ms = 1_000 + journal.end_position
            decision = ledger.decide(command, Now(now_ms, now_ms))
            assert isinstance(decision, Decision)
            assert decision.event is not None
            ledger.apply(decision.event)
            body = events.join([events.encode_one(decision.event)])
            assert journal.reserve(len(body) + FRAME_OVERHEAD)
            journal.write(body, 1, ledger.digest, now_ms)


def in_memory() -> tuple[MemoryArchive, MemoryJournal, Ledger]:
    """Returns the archive of a journal in memory with `JOBS` jobs, and their ledger."""
    journal, ledger = MemoryJournal(cluster_id=CLUSTER_ID), Ledger(LedgerConfig())
    fill(journal, ledger, 0, JOBS)
    return MemoryArchive(journal), journal, ledger


def test_snapshots_of_every_engine_hold_the_same_state() -> None:
    """For the same frames, an engine without files gives the snapshot that a directory gives."""
    memory, *_ = in_memory()
    disk, ledger = empty_disk(), Ledger(LedgerConfig())
    journal = open_journal(disk)
    fill(journal, ledger, 0, JOBS)
    journal.close()
    open_journal(disk).close()  # seals every frame
    directory = DirectoryArchive(disk)
    archives: list[JournalArchive] = [memory, directory]
    assert [take_snapshot(archive, LedgerConfig()) for archive in archives] == [2 * JOBS, 2 * JOBS]
    (one, other) = ([*archive.snapshot_chunks(2 * JOBS)] for archive in archives)
    assert one == other
    assert memory.snapshot_header(2 * JOBS).digest == directory.snapshot_header(2 * JOBS).digest == ledger.digest


def test_snapshot_made_in_steps_replaces_those_of_its_steps() -> None:
    """With memory for one frame at a time, only the last snapshot stays, and the one before the work."""
    memory, journal, ledger = in_memory()
    first = take_snapshot(memory, LedgerConfig())
    fill(journal, ledger, JOBS, 3)
    last = take_snapshot(memory, LedgerConfig(), part_bytes=1)
    assert memory.snapshots() == [first, last]
    assert take_snapshot(memory, LedgerConfig()) == 0


def test_ledger_is_restored_from_any_engine() -> None:
    """The restored ledger has the digest of the one that was written, and the link of its last frame."""
    memory, journal, ledger = in_memory()
    take_snapshot(memory, LedgerConfig())
    restored = restore(memory, LedgerConfig())
    assert (restored.ledger.digest, restored.link, restored.warnings) == (ledger.digest, journal.end_checksum, [])


def test_past_of_any_engine_is_read() -> None:
    """History, all events, a past state and the verification come from an engine without files."""
    memory, journal, ledger = in_memory()
    assert [entry.what for entry in time_travel.history(memory, "job-3")] == ["submitted", "granted"]
    positions = [position for position, _ in time_travel.all_events(memory, 5)]
    assert positions[0] == 6
    assert positions[-1] == journal.end_position
    assert all(after == before + 1 for before, after in pairwise(positions))
    assert len(time_travel.state_at(memory, lambda position, _event: position > 9).state.jobs) == 5
    proof = time_travel.verify(memory, lambda _position, _end: None)
    assert (proof.first_position, proof.frames, proof.digest) == (1, 2 * JOBS, ledger.digest)


def test_past_of_a_trimmed_journal_begins_with_its_snapshot() -> None:
    """After frames were removed, a past state is that of the oldest snapshot and the frames after it."""
    memory, journal, ledger = in_memory()
    covered = take_snapshot(memory, LedgerConfig())
    fill(journal, ledger, JOBS, 3)
    memory.remove(covered)
    assert memory.view().first_position == covered + 1
    assert time_travel.state_at(memory, lambda _position, _event: False).digest == ledger.digest
    assert time_travel.verify(memory, lambda _position, _end: None).first_position == covered + 1
