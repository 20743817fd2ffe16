"""Facts that arenas find in damaged stores, and in processes that exit unexpectedly."""

import os
import shutil
import signal
from functools import partial
from pathlib import Path

import pytest

from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.events import Created
from holdfast.core.ledger import LedgerConfig
from holdfast.core.lifecycle import CANCELED, DONE, FAILED, QUEUED, RUNNING
from holdfast.core.model import NewJob, Result, Template
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.port import JournalConfig
from holdfast.ledger.recovery import recover
from holdfast.ledger.snapshots import take_snapshot
from holdfast.topologies.microservices.state.record_events import Moved, RecordEvent, SpentBudget
from holdfast.topologies.microservices.state.records import Records
from holdfast.topologies.zookeeper.backend.records import Record as JobRecord
from holdfast_lab.bench.replay import write_history
from holdfast_lab.history.records import DamageFact, EndFact, GrantFact, JobFact
from holdfast_lab.torture.arenas import arena_of, ledger_facts
from holdfast_lab.torture.arenas.archive import Archive
from holdfast_lab.torture.arenas.record_facts import RecordFacts
from holdfast_lab.torture.arenas.zookeeper_facts import agreed, facts_of
from holdfast_lab.torture.faults.wait_until import until

JOBS = 500
WAIT_S = 90.0
JOB = "1b671a64-40d5-491e-99b0-da01ff1f3341"
CREATED = Created(1, [Template("work")], [NewJob(JOB, 0)])
GRANTED = Moved(2, JOB, RUNNING, 1, "w")


def test_sound_ledger_has_no_damage(short_path: Path) -> None:
    """The facts of a sound journal have every job, with one lease and one end."""
    data = short_path / "data"
    data.mkdir()
    write_history(data, JOBS)
    facts = ledger_facts.read(data, "ledger")
    kinds = [sum(isinstance(fact, kind) for fact in facts) for kind in (JobFact, GrantFact, EndFact, DamageFact)]
    assert kinds == [JOBS, JOBS, JOBS, 0]


def test_ledger_with_a_changed_byte_is_damaged(short_path: Path) -> None:
    """One changed byte in the middle of the journal is found as damage, and the check changes no file."""
    data = short_path / "data"
    data.mkdir()
    write_history(data, JOBS)
    segment = next(data.glob("*.seg"))
    content = bytearray(segment.read_bytes())
    content[len(content) // 4] ^= 1
    segment.write_bytes(content)
    facts = ledger_facts.read(data, "ledger")
    assert [type(fact) for fact in facts] == [DamageFact]
    assert segment.read_bytes() == content


def test_ledger_that_was_trimmed_is_whole_with_its_archive(short_path: Path) -> None:
    """With its archive a trimmed journal has all facts, and without it it is damaged."""
    data, copies = short_path / "data", short_path / "archive"
    data.mkdir()
    write_history(data, JOBS)
    archive = Archive(data, copies)
    config = JournalConfig(digest_version=DIGEST_VERSION)
    recovered = recover(OsDisk(data), config, LedgerConfig(), now_ms=1, new_cluster_id=bytes(16))
    covered = take_snapshot(DirectoryArchive(OsDisk(data)), LedgerConfig())
    assert recovered.journal.remove_segments(covered) == []
    archive.take()
    assert len(recovered.journal.remove_segments(covered)) == archive.trimmed() == 1
    recovered.journal.close()
    archive.close()
    facts = ledger_facts.read(data, "ledger", copies)
    kinds = [sum(isinstance(fact, kind) for fact in facts) for kind in (JobFact, GrantFact, EndFact, DamageFact)]
    assert kinds == [JOBS, JOBS, JOBS, 0]
    assert [type(fact) for fact in ledger_facts.read(data, "ledger")] == [DamageFact]
    assert sorted(path.name for path in data.glob("*.seg")) == [f"{covered + 1:020d}-0000000002.seg"]


def test_segment_that_a_start_removes_is_no_error(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty segment that disappears between the listing and the copy is left out of the archive."""
    data, copies = short_path / "data", short_path / "archive"
    data.mkdir()
    write_history(data, JOBS)
    config = JournalConfig(digest_version=DIGEST_VERSION)
    recover(OsDisk(data), config, LedgerConfig(), now_ms=1, new_cluster_id=bytes(16)).journal.close()
    gone, copy = min(path.name for path in data.glob("*.seg")), shutil.copyfile

    def copy_late(source: Path, target: Path) -> None:
        source.unlink()
        copy(source, target)

    monkeypatch.setattr(shutil, "copyfile", copy_late)
    archive = Archive(data, copies)
    archive.take()
    archive.close()
    assert not (data / gone).exists()
    assert list(copies.iterdir()) == []


def test_journal_with_segments_that_differ_from_its_snapshot_is_damaged(short_path: Path) -> None:
    """A journal whose archived segments do not match its snapshot is damaged."""
    data, other = short_path / "data", short_path / "other"
    for path in (data, other):
        path.mkdir()
        write_history(path, JOBS)
        recover(
            OsDisk(path),
            JournalConfig(digest_version=DIGEST_VERSION),
            LedgerConfig(),
            now_ms=1,
            new_cluster_id=bytes(16),
        ).journal.close()
        take_snapshot(DirectoryArchive(OsDisk(path)), LedgerConfig())
    first = min(data.glob("*.seg"))
    copies = short_path / "archive"
    copies.mkdir()
    shutil.copyfile(other / first.name, copies / first.name)
    first.unlink()
    assert [type(fact) for fact in ledger_facts.read(data, "ledger", copies)] == [DamageFact]


def said_of(*events: RecordEvent) -> RecordFacts:
    """The facts of these events of a job service."""
    facts = RecordFacts(Records(), "services", lambda _: "")
    for event in events:
        facts.take(event)
    return facts


def test_lawful_moves_of_a_record_are_no_damage() -> None:
    """A job that was lost, granted again and done has two leases, one end and no damage."""
    lost, again = Moved(3, JOB, QUEUED, 1, spends=SpentBudget.LOSS), Moved(4, JOB, RUNNING, 2, "w")
    facts = said_of(CREATED, GRANTED, lost, again, Moved(5, JOB, DONE, 2))
    assert facts.damage == []
    assert facts.records() == [
        GrantFact(JOB, 1, 1, "services", 2),
        GrantFact(JOB, 2, 3, "services", 4),
        EndFact(JOB, DONE, 2, 4),
    ]


@pytest.mark.parametrize(
    "moves",
    [
        [Moved(2, "another", RUNNING, 1, "w")],
        [Moved(2, JOB, DONE)],
        [GRANTED, Moved(3, JOB, DONE, 7)],
        [GRANTED, Moved(3, JOB, DONE, 1), Moved(4, JOB, FAILED, 1)],
        [GRANTED, Moved(3, JOB, QUEUED, 1), Moved(4, JOB, RUNNING, 1, "w")],
    ],
    ids=["nobody's", "not granted", "under another token", "ended twice", "the same token twice"],
)
def test_unlawful_move_of_a_record_is_damage(moves: list[RecordEvent]) -> None:
    """A move that the job service must never write is found as damage."""
    assert len(said_of(CREATED, *moves).damage) == 1


def test_nodes_that_contradict_each_other_are_damage() -> None:
    """A record that contradicts its result, or an ended job with a bid, is found as damage."""
    record = partial(JobRecord, JOB, Template("work"), 1)
    done = Result(1, DONE)

    def damage(state: int, result: Result | None, *names: str) -> int:
        return sum(isinstance(fact, DamageFact) for fact in facts_of(record(state=state), result, set(names)))

    assert damage(DONE, done, "result", "payload") == 0
    assert damage(RUNNING, None, "bid", "payload") == 0
    assert damage(DONE, None) == 1
    assert damage(CANCELED, done, "result") == 1
    assert damage(RUNNING, done, "result", "bid") == 1
    assert damage(DONE, done, "result", "bid") == 1


def test_servers_that_know_different_ends_are_damaged() -> None:
    """Servers that disagree about the end of a job are damaged, although each is sound by itself."""
    job, end = JobFact(JOB, "a", DONE), EndFact(JOB, DONE, 1)
    assert agreed({"a": [job, end], "b": [end, job], "c": [job, end]}) == [job, end]
    *facts, damage = agreed({"a": [job, end], "c": [job], "b": [job, end]})
    assert facts == [job, end]
    assert isinstance(damage, DamageFact)
    assert damage.text.startswith("c and a differ in 1 facts")


async def test_process_that_ends_by_itself_is_strange(short_path: Path) -> None:
    """A process that exits unexpectedly is replaced and reported as strange."""
    arena = arena_of("embedded", short_path)
    try:
        await arena.start()
        worker = next(one for one in arena.processes() if one.role == "worker")
        old = worker.pid()
        os.kill(old, signal.SIGKILL)
        assert await until(lambda: worker.pid() not in {0, old} and worker.is_ready(), WAIT_S), "no other worker came"
        assert arena.strange() == [f"{worker.name} ended by itself with -9"]
    finally:
        await arena.stop()
