"""A disk that is full for an hour while workers run jobs: counts lost outcomes, and jobs that run twice.

The coordinator, its sessions and the journal are the product's. The clock and the disk are the simulator's: an hour
passes in a minute or less, a full disk has no free byte, and a sync takes no time. The workers stay connected, send
heartbeats, and report finished jobs; every fourth output is large.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass

from holdfast import limits
from holdfast.core import commands, events
from holdfast.core.commands import GrantedLease, ReportRow
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.lifecycle import DONE, RUNNING, TERMINAL
from holdfast.core.model import NewJob, Template
from holdfast.journal.file import FileJournal
from holdfast.journal.port import JournalConfig
from holdfast.ledger.coordinator import CommandLane, Coordinator, CoordinatorPorts, LoopConfig
from holdfast.ledger.sessions import Hello, Session, SessionConfig, SessionDispatcher, SessionPush
from holdfast_lab.measure.command import parser, show
from holdfast_lab.measure.tables import fields
from holdfast_lab.simulation.disk import SimDisk
from holdfast_lab.simulation.scheduler import Call, ScheduledCall, SimulatedScheduler

_SECOND_US = 1_000_000
_BATCH_JOBS = 500
_LARGE_EVERY, _LARGE_BYTES, _SMALL_BYTES = 4, 100_000, 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FullDiskPlan:
    """One run. Jobs take `run_s` or `long_s`; the disk is full from `full_at_s` on, for `full_minutes`."""

    workers: int = 200
    slots: int = 2
    jobs_each: int = 4
    run_s: int = 120
    long_s: int = 3_000
    heartbeat_ms: int = limits.HEARTBEAT_MS
    lease_ms: int = limits.LEASE_MS_DEFAULT
    full_at_s: int = 10
    full_minutes: int = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class FullDiskFigures:
    """The result; the work of a job that was executed more than once was partly wasted."""

    jobs: int
    done: int
    executed_twice: int
    finished_while_full: int
    recorded_while_full: int
    leases_lost: int
    reports_refused: int
    granted_while_full: int
    written_while_full_bytes: int


class SimulatedMachine:
    """The ports of the coordinator, on one simulated clock."""

    def __init__(self) -> None:
        self.clock = SimulatedScheduler()

    def soon(self, call: Call) -> None:
        """Runs the call in the next round."""
        self.clock.after(1, "turn", call)

    def later(self, delay_ms: int, call: Call) -> ScheduledCall:
        """Runs the call after the delay."""
        return self.clock.after(delay_ms * 1_000, "timer", call)

    def run(self, work: Callable[[], int], done: Callable[[int | BaseException], None], *, is_lone: bool) -> None:
        """Runs a sync that takes no time."""
        assert is_lone is not None
        self.clock.after(1, "sync", lambda: done(work()))

    def fatal(self, error: BaseException) -> None:
        """Raises: the journal must not fail."""
        raise error

    def pass_s(self, seconds: int) -> None:
        """Advances time by this many seconds."""
        is_over = False

        def end() -> None:
            nonlocal is_over
            is_over = True

        self.clock.after(seconds * _SECOND_US, "end", end)
        while not is_over:
            self.clock.step()


class FullDiskRun:
    """A coordinator, its workers, and the counters."""

    def __init__(self, plan: FullDiskPlan) -> None:
        self.plan = plan
        self.machine = machine = SimulatedMachine()
        self.disk = SimDisk(random.Random(0))
        self.journal = FileJournal.open(self.disk, JournalConfig(), now_ms=0, new_cluster_id=bytes(16))
        self.ledger = Ledger(LedgerConfig())
        world = CoordinatorPorts(machine.clock, machine, machine, machine.fatal)
        self.coordinator = Coordinator(self.ledger, self.journal, world, LoopConfig())
        self.dispatcher = SessionDispatcher(
            self.coordinator, SessionConfig(plan.lease_ms, limits.WORKER_TIMEOUT_MS * 10)
        )
        self.coordinator.observers.append(self)
        self.executed: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.finished = 0
        self.coordinator.start()
        self.workers = [Worker(f"worker-{number}", self) for number in range(plan.workers)]

    def run(self) -> FullDiskFigures:
        """Runs all phases."""
        plan, machine = self.plan, self.machine
        self._submit(plan.workers * plan.jobs_each)
        machine.pass_s(plan.full_at_s)
        self.disk.faults.free_bytes = 0
        before, finished, written = self.events.copy(), self.finished, self._written()
        machine.pass_s(plan.full_minutes * 60)
        full = self.events - before
        finished, written = self.finished - finished, self._written() - written
        self.disk.faults.free_bytes = None
        while not self._is_over():
            machine.pass_s(plan.run_s)
        return FullDiskFigures(
            jobs=len(self.ledger.state.jobs),
            done=sum(job.state == DONE for job in self.ledger.state.jobs.values()),
            executed_twice=sum(count > 1 for count in self.executed.values()),
            finished_while_full=finished,
            recorded_while_full=full["outcome"],
            leases_lost=self.events["revocation"],
            reports_refused=self.events["refusal"],
            granted_while_full=full["grant"],
            written_while_full_bytes=written,
        )

    def _submit(self, count: int) -> None:
        for first in range(0, count, _BATCH_JOBS):
            jobs = [NewJob(f"job-{number}", 0) for number in range(first, min(first + _BATCH_JOBS, count))]
            self.coordinator.call(CommandLane.SUBMIT, commands.Submit([Template("type")], jobs), lambda _: None)

    def _is_over(self) -> bool:
        jobs = self.ledger.state.jobs.values()
        return all(job.state in TERMINAL for job in jobs)

    def _written(self) -> int:
        return sum(info.bytes for info in self.journal.segments())

    def applied(self, position: int, event: events.AnyEvent, ledger: Ledger) -> None:
        """Counts the events of the journal."""
        assert position <= ledger.position
        if type(event) is events.Reported:
            self.events["outcome"] += len(event.results)
            self.events["refusal"] += len(event.refused)
        elif type(event) is events.Revoked:
            self.events["revocation"] += len(event.rows)
        elif type(event) is events.Granted:
            self.events["grant"] += len(event.job_ids)

    def durable(self, position: int) -> None:
        """Does nothing."""

    def bug(self, command: object, error: Exception) -> None:
        """Raises: every command can be decided."""
        raise AssertionError(f"{command} could not be decided") from error


class Worker:
    """Runs its jobs, sends heartbeats, and reports; its connection never breaks."""

    def __init__(self, name: str, hour: FullDiskRun) -> None:
        self._hour = hour
        self._running: set[int] = set()
        self._reports = 0
        self._session = Session(Hello(name, frozenset({"type"}), slots=hour.plan.slots), self._hear, self._supersede)
        hour.dispatcher.attach(self._session)
        self._beat()

    def _supersede(self) -> None:
        raise AssertionError("another worker has this name")

    def _beat(self) -> None:
        hour = self._hour
        hour.dispatcher.heartbeat(self._session)
        hour.machine.clock.after(hour.plan.heartbeat_ms * 1_000, "beat", self._beat)

    def _hear(self, push: SessionPush) -> None:
        if push.is_welcome:
            self._hour.dispatcher.grant_credits(self._session, self._hour.plan.slots)
        for token in push.revoked:
            if token in self._running:
                self._running.remove(token)
                self._hour.dispatcher.grant_credits(self._session, 1)
        for lease in push.leases:
            self._run(lease)

    def _run(self, lease: GrantedLease) -> None:
        hour = self._hour
        hour.executed[lease.job_id] += 1
        self._running.add(lease.token)
        run_s = hour.plan.run_s if lease.token % 2 else hour.plan.long_s
        hour.machine.clock.after(run_s * _SECOND_US, "finished", lambda: self._finish(lease))

    def _finish(self, lease: GrantedLease) -> None:
        if lease.token not in self._running:
            return
        hour = self._hour
        self._running.remove(lease.token)
        is_running = hour.ledger.state.jobs[lease.job_id].state == RUNNING
        hour.finished += is_running
        self._reports += 1
        size = _SMALL_BYTES if lease.token % _LARGE_EVERY else _LARGE_BYTES
        row = ReportRow(lease.job_id, lease.token, DONE, bytes(size), "done")
        hour.dispatcher.report(self._session, self._reports, [row])
        hour.dispatcher.grant_credits(self._session, 1)


def main(arguments: list[str] | None = None) -> int:
    """Print the figures of one run; the exit status is 1 if a job was executed twice."""
    plan = FullDiskPlan()
    options = parser(__doc__)
    options.add_argument("--workers", type=int, default=plan.workers)
    options.add_argument("--minutes", type=int, default=plan.full_minutes, help="how long the disk is full")
    options.add_argument("--jobs-each", type=int, default=plan.jobs_each, help="jobs for each worker")
    options.add_argument("--heartbeat-ms", type=int, default=plan.heartbeat_ms)
    given = options.parse_args(arguments)
    plan = FullDiskPlan(
        workers=given.workers,
        jobs_each=given.jobs_each,
        full_minutes=given.minutes,
        heartbeat_ms=given.heartbeat_ms,
    )
    figures = FullDiskRun(plan).run()
    show(figures, fields(asdict(figures)), as_json=given.json)
    return 1 if figures.executed_twice else 0


if __name__ == "__main__":
    sys.exit(main())
