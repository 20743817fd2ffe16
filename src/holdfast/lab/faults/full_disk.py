"""A disk that is full for an hour while workers run jobs: how many outcomes are lost, how many jobs run twice.

The coordinator, its sessions and the journal are the product's. The clock and the disk are those of the simulator: an
hour passes in a minute or less, the disk has no free byte from the moment when it is full, and a sync costs nothing.
The workers are connected all the time, send heartbeats, and report what they finish; every fourth output is large.
"""

import argparse
import json
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
from holdfast.ledger.coordinator import CommandLane, Coordinator, CoordinatorWorld, LoopConfig
from holdfast.ledger.sessions import Hello, Session, SessionConfig, SessionDispatcher, SessionPush
from holdfast.testing.disk import SimDisk
from holdfast.testing.simulation.clockwork import Call, Clockwork, Planned

_SECOND_US = 1_000_000
_BATCH_JOBS = 500
_LARGE_EVERY, _LARGE_BYTES, _SMALL_BYTES = 4, 100_000, 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
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
class Figures:
    """What came of it. A job that was executed more than once was finished, or half done, in vain."""

    jobs: int
    done: int
    executed_twice: int
    finished_while_full: int
    recorded_while_full: int
    leases_lost: int
    reports_refused: int
    granted_while_full: int
    written_while_full_bytes: int


class Machine:
    """The ports of the coordinator over one simulated clock."""

    def __init__(self) -> None:
        self.clock = Clockwork()

    def soon(self, call: Call) -> None:
        """In the next round."""
        self.clock.after(1, "turn", call)

    def later(self, delay_ms: int, call: Call) -> Planned:
        """After the delay."""
        return self.clock.after(delay_ms * 1_000, "timer", call)

    def run(self, work: Callable[[], int], done: Callable[[int | BaseException], None], *, is_lone: bool) -> None:
        """A sync that costs nothing."""
        assert is_lone is not None
        self.clock.after(1, "sync", lambda: done(work()))

    def fatal(self, error: BaseException) -> None:
        """The journal must not fail."""
        raise error

    def pass_s(self, seconds: int) -> None:
        """Lets so much time pass."""
        is_over = False

        def end() -> None:
            nonlocal is_over
            is_over = True

        self.clock.after(seconds * _SECOND_US, "end", end)
        while not is_over:
            self.clock.step()


class Hour:
    """A coordinator, its workers, and what is counted."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.machine = machine = Machine()
        self.disk = SimDisk(random.Random(0))
        self.journal = FileJournal.open(self.disk, JournalConfig(), now_ms=0, new_cluster_id=bytes(16))
        self.ledger = Ledger(LedgerConfig())
        world = CoordinatorWorld(machine.clock, machine, machine, machine.fatal)
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

    def run(self) -> Figures:
        """The whole story."""
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
        return Figures(
            jobs=len(self.ledger.book.jobs),
            done=sum(job.state == DONE for job in self.ledger.book.jobs.values()),
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
        jobs = self.ledger.book.jobs.values()
        return all(job.state in TERMINAL for job in jobs)

    def _written(self) -> int:
        return sum(info.bytes for info in self.journal.segments())

    def applied(self, position: int, event: events.AnyEvent, ledger: Ledger) -> None:
        """Counts what the journal tells."""
        assert position <= ledger.position
        if type(event) is events.Reported:
            self.events["outcome"] += len(event.results)
            self.events["refusal"] += len(event.refused)
        elif type(event) is events.Revoked:
            self.events["revocation"] += len(event.rows)
        elif type(event) is events.Granted:
            self.events["grant"] += len(event.job_ids)

    def durable(self, position: int) -> None:
        """Nothing to count."""

    def bug(self, command: object, error: Exception) -> None:
        """There are none."""
        raise AssertionError(f"{command} could not be decided") from error


class Worker:
    """Runs what it is given, says that it lives, and reports; its connection never breaks."""

    def __init__(self, name: str, hour: Hour) -> None:
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
        is_running = hour.ledger.book.jobs[lease.job_id].state == RUNNING
        hour.finished += is_running
        self._reports += 1
        size = _SMALL_BYTES if lease.token % _LARGE_EVERY else _LARGE_BYTES
        row = ReportRow(lease.job_id, lease.token, DONE, bytes(size), "done")
        hour.dispatcher.report(self._session, self._reports, [row])
        hour.dispatcher.grant_credits(self._session, 1)


def table(figures: Figures) -> str:
    """The figures for people."""
    rows = [(name.replace("_", " "), f"{value:,}") for name, value in asdict(figures).items()]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value:>12}" for name, value in rows)


def main(arguments: list[str] | None = None) -> int:
    """Prints the figures of one run; returns 1 if a job was executed twice."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.lab.faults.full_disk", description=__doc__)
    plan = Plan()
    parser.add_argument("--workers", type=int, default=plan.workers)
    parser.add_argument("--minutes", type=int, default=plan.full_minutes, help="how long the disk is full")
    parser.add_argument("--jobs-each", type=int, default=plan.jobs_each, help="jobs for each worker")
    parser.add_argument("--heartbeat-ms", type=int, default=plan.heartbeat_ms)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    plan = Plan(
        workers=options.workers,
        jobs_each=options.jobs_each,
        full_minutes=options.minutes,
        heartbeat_ms=options.heartbeat_ms,
    )
    figures = Hour(plan).run()
    print(json.dumps(asdict(figures)) if options.json else table(figures))
    return 1 if figures.executed_twice else 0


if __name__ == "__main__":
    sys.exit(main())
