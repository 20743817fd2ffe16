"""Write directories of a ledger and of the three owners, and a backup, in the present format version.

    PYTHONPATH=src python -m tests.golden.state.generate

Run this only for a new format version; the files of older versions are never written again. Unlike the files of
tests/golden/journal, these hold real events, so that their digests can be checked.
"""

import random
from collections.abc import Callable
from pathlib import Path

from holdfast import limits
from holdfast.core import commands, events
from holdfast.core.commands import Decision, GrantedLease, ReportRow
from holdfast.core.events import AnyEvent
from holdfast.core.ledger import LedgerConfig
from holdfast.core.lifecycle import DONE, FAILED, QUEUED, RUNNING, State
from holdfast.core.model import Extra, NewJob, Now, QueueMode, ScheduleSpec, Template
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.port import JournalConfig
from holdfast.journal.snapshot import SnapshotHeader, write_snapshot
from holdfast.journal.version import FORMAT_VERSION
from holdfast.ledger.recovery import recover
from holdfast.ledger.snapshots import take_snapshot
from holdfast.topologies.backup import take_backup
from holdfast.topologies.microservices.services.owner_journal import RecoveredOwner, StateMachine, join
from holdfast.topologies.microservices.state import envelopes, records, waiting_jobs
from holdfast.topologies.microservices.state.record_events import Move, RecordDecision, SpentBudget
from holdfast_lab.simulation.disk import SimDisk

GOLDEN = Path(__file__).parent
CLUSTER_ID = bytes.fromhex("00112233445566778899aabbccddeeff")
START_MS = 1_700_000_000_000
CONFIG = JournalConfig(segment_bytes=2_500, extent_bytes=1_024)
JOBS = 12
LEDGER, BACKUP = "ledger", "backup"


def job_id(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-{number:012x}"


class _LedgerWriter:
    """A ledger whose events are written to a journal, one frame each."""

    def __init__(self, disk: SimDisk, now_ms: int) -> None:
        found = recover(disk, CONFIG, LedgerConfig(), now_ms=now_ms, new_cluster_id=CLUSTER_ID)
        self.journal, self.ledger, self.now_ms = found.journal, found.ledger, now_ms
        self.do(commands.Start(self.journal.epoch))

    def do(self, command: commands.AnyCommand) -> object:
        self.now_ms += 10
        decision = self.ledger.decide(command, Now(self.now_ms, self.now_ms))
        assert isinstance(decision, Decision), decision
        if decision.event is not None:
            self._write(decision.event)
        return decision.reply

    def _write(self, event: AnyEvent) -> None:
        self.ledger.apply(event)
        self.journal.write(events.join([events.encode_one(event)]), 1, self.ledger.digest, self.now_ms)

    def lease(self, count: int) -> list[GrantedLease]:
        command = commands.GrantLeases("worker-1", frozenset({"echo"}), frozenset(), count, 30_000)
        granted = self.do(command)
        assert isinstance(granted, list)
        return granted


def ledger_files() -> dict[str, bytes]:
    """Returns the files of a ledger: jobs in every state, a closed queue, schedules, a snapshot, and a second epoch."""
    disk = SimDisk(random.Random(0))
    writer = _LedgerWriter(disk, START_MS)
    template = Template("echo", max_attempts=2)
    for number in range(JOBS):
        extra = Extra(request_id=f"key-{number}", labels=(("of", "golden"),)) if number % 3 == 0 else None
        row = NewJob(job_id(number), 0, b"payload %d" % number, 0, extra)
        writer.do(commands.Submit([template], [row]))
    writer.do(commands.SetQueueMode("slow", QueueMode.PAUSED, "for maintenance"))
    writer.do(commands.SetSchedule(ScheduleSpec("hourly", template, cron="0 * * * *")))
    granted = writer.lease(5)
    first = [ReportRow(one.job_id, one.token, DONE, b"output") for one in granted[:2]]
    writer.do(commands.Report("worker-1", first))
    writer.do(commands.Report("worker-1", [ReportRow(granted[2].job_id, granted[2].token, FAILED, b"", "", "boom")]))
    writer.do(commands.Cancel(job_id(JOBS - 1), "not needed"))
    writer.do(commands.Cancel(granted[3].job_id, "too late"))
    writer.journal.close()
    assert take_snapshot(DirectoryArchive(disk), LedgerConfig())
    writer = _LedgerWriter(disk, START_MS + 60_000)
    writer.do(commands.Revoke("worker-1", "lost", is_spent=True))
    for one in writer.lease(3):
        writer.do(commands.Report("worker-1", [ReportRow(one.job_id, one.token, DONE, b"again")]))
    writer.do(commands.SetQueueMode("slow", QueueMode.DRAINING, "before it goes"))
    writer.do(commands.SetSchedule(ScheduleSpec("minutely", template, every_ms=60_000)))
    writer.journal.close()
    return disk.files()


Story = Callable[[StateMachine, Callable[[object], None]], None]


def _records(machine: StateMachine, write: Callable[[object], None]) -> None:
    assert isinstance(machine, records.Records)

    def decided(answer: object) -> None:
        assert isinstance(answer, RecordDecision), answer
        write(answer.event)

    for number in range(JOBS):
        extra = Extra(request_id=f"key-{number}")
        row = NewJob(job_id(number), 0, b"payload %d" % number, 0, extra)
        decided(machine.create(Template("echo"), row, START_MS + number, is_id_given=False))
    again = NewJob(job_id(99), 0, b"payload 0", 0, Extra("key-0"))
    decided(machine.create(Template("echo"), again, START_MS + 50, is_id_given=False))
    for number in range(6):
        queued, running = State(QUEUED), State(RUNNING)
        decided(machine.move(Move(job_id(number), queued, running, worker="worker-1"), START_MS + 100 + 10 * number))
        target = [State(DONE), State(FAILED), queued][number % 3] if number < 5 else None
        if target is not None:
            spends = SpentBudget.LOSS if target == queued else SpentBudget.NOTHING
            decided(machine.move(Move(job_id(number), running, target, spends=spends), START_MS + 105 + 10 * number))
    decided(machine.request_cancel(job_id(5), "too late", START_MS + 300))
    decided(machine.delete(job_id(JOBS - 1), State(QUEUED), START_MS + 301))


def _line(machine: StateMachine, write: Callable[[object], None]) -> None:
    assert isinstance(machine, waiting_jobs.WaitingJobs)
    for number in range(JOBS):
        queue, due = ("default", "slow")[number % 2], START_MS + 86_400_000 if number % 4 == 3 else 0
        ticket = waiting_jobs.WaitingTicket(job_id(number), queue, "echo", number % 10, number + 1, due)
        write(machine.decide_enqueue(ticket, START_MS + number))
    for number in range(4):
        write(machine.decide_dequeue("worker-1", None, START_MS + 100 + number))
    write(machine.decide_remove(job_id(3), START_MS + 200))


def _envelopes(machine: StateMachine, write: Callable[[object], None]) -> None:
    assert isinstance(machine, envelopes.Envelopes)
    for number in range(JOBS):
        envelope = envelopes.Envelope(job_id(number), [DONE, FAILED][number % 2], number, "said", b"output %d" % number)
        write(machine.decide_store(envelope, START_MS + number).event)
    write(machine.decide_store(envelopes.Envelope(job_id(0), DONE), START_MS + 100).event)


OWNERS: dict[str, tuple[Callable[[], StateMachine], Story]] = {
    "job": (records.Records, _records),
    "queue": (lambda: waiting_jobs.WaitingJobs(limits.AGING_MS_DEFAULT), _line),
    "result": (lambda: envelopes.Envelopes(envelopes.EnvelopeRetention.beyond()), _envelopes),
}


def owner_files(kind: str) -> dict[str, bytes]:
    """Returns the files of an owner: one frame per event, and a snapshot after the first twelve."""
    disk = SimDisk(random.Random(0))
    new, tell = OWNERS[kind]
    machine = new()
    journal = RecoveredOwner.of(machine, disk, CONFIG, now_ms=START_MS, new_cluster_id=CLUSTER_ID).journal

    def write(event: object) -> None:
        assert event is not None
        machine.apply(event)
        at_ms: int = event.at_ms  # type: ignore[attr-defined]
        journal.write(join(at_ms, [machine.encode(event)]), 1, machine.digest, at_ms)
        if journal.end_position == JOBS:
            header = SnapshotHeader(
                digest_version=CONFIG.digest_version,
                cluster_id=CLUSTER_ID,
                position=journal.end_position,
                link=journal.end_checksum,
                log_time_ms=at_ms,
                digest=machine.digest,
            )
            write_snapshot(disk, header, machine.image())

    tell(machine, write)
    journal.close()
    return disk.files()


def main() -> None:
    directory = GOLDEN / f"v{FORMAT_VERSION}"
    for name, files in {LEDGER: ledger_files(), **{kind: owner_files(kind) for kind in OWNERS}}.items():
        (directory / name).mkdir(parents=True)
        for file, data in files.items():
            (directory / name / file).write_bytes(data)
    take_backup(directory / LEDGER, directory / BACKUP, now_ms=START_MS, watch=lambda _: lambda _done, _total: None)
    for path in directory.rglob("LOCK"):
        path.unlink()
    for path in directory.rglob("pin-*"):
        path.unlink()


if __name__ == "__main__":
    main()
