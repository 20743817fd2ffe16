"""A whole run: made from the seed, stepped to the number of events, then healed and drained."""

import random
from dataclasses import dataclass, field

from holdfast.core.lifecycle import CANCELED
from holdfast_lab.simulation.clients import SimulatedClient
from holdfast_lab.simulation.connections import Connector
from holdfast_lab.simulation.disk import SimulatedCrash
from holdfast_lab.simulation.faults import FaultInjector
from holdfast_lab.simulation.host import Host
from holdfast_lab.simulation.jobs import draw_templates
from holdfast_lab.simulation.machine_sources import machine_sources
from holdfast_lab.simulation.model import ModelViolation
from holdfast_lab.simulation.network import Network
from holdfast_lab.simulation.operators import Operator
from holdfast_lab.simulation.planners import Planner
from holdfast_lab.simulation.response_checks import ResponseChecks
from holdfast_lab.simulation.runtime_clients import RuntimeClient
from holdfast_lab.simulation.runtime_rules import RuntimeRules
from holdfast_lab.simulation.runtime_workers import RuntimeWorker
from holdfast_lab.simulation.scheduler import SimulatedScheduler
from holdfast_lab.simulation.swarm import SwarmSettings
from holdfast_lab.simulation.unary_workers import UnaryWorker
from holdfast_lab.simulation.violation import Violation, require
from holdfast_lab.simulation.witness import LogWitness
from holdfast_lab.simulation.workers import StreamingWorker

#: Once the faults are over, all jobs must end within this simulated time.
DRAIN_MS_MAX = 300_000
_DRAIN_STEPS_MAX = 400_000
_QUIET_CHECK_STEPS = 64

#: Operations that must succeed at least once over a sweep; a run without one of them is void.
OPERATIONS = (
    "submit",
    "submit batch",
    "submit with key",
    "repeated submit",
    "refused REQUEST_ID_REUSED",
    "repeated id",
    "refused JOB_ID_REUSED",
    "found by unique key",
    "mode PAUSED",
    "mode DRAINING",
    "mode OPEN",
    "refused QUEUE_DRAINING",
    "purge",
    "schedule set",
    "schedule set again",
    "schedule paused",
    "schedule resumed",
    "schedule triggered",
    "schedule deleted",
    "schedules",
    "tick fired",
    "tick skipped",
    "tick missed",
    "search",
    "queues",
    "Noted",
    "drain asked",
    "get",
    "list",
    "cancel queued",
    "cancel other",
    "lease",
    "report accepted",
    "report acknowledged",
    "release",
    "drain",
    "cancel heard",
    "runtime submit",
    "runtime submit unanswered",
    "runtime settled",
    "runtime report",
    "runtime drain",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """The outcome of a run; `failure` is empty if every guarantee held, `missing` is not if the run is void."""

    settings: SwarmSettings
    failure: str
    steps: int
    simulated_ms: int
    digest: str
    fired: dict[str, int]
    done: dict[str, int]
    missing: list[str]
    tail: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """The verdict in one word."""
        return "FAILED" if self.failure else "void" if self.missing else "ok"


class SimulatedWorld:
    """One run."""

    def __init__(self, settings: SwarmSettings) -> None:
        self.settings = settings
        self.clock = SimulatedScheduler()
        self.log = LogWitness(settings)
        self.response_checks = ResponseChecks(self.log)
        self.host = Host(self.clock, settings, self.log, self.response_checks)
        self.net = Network(self.clock, self.host, settings, _stream(settings, "network"))
        templates = draw_templates(settings)
        self.clients = [
            SimulatedClient(f"client-{number}", self.net, self.response_checks, settings, templates)
            for number in range(settings.clients)
        ]
        self.workers: list[StreamingWorker | UnaryWorker] = [
            StreamingWorker(name, self.net, self.response_checks, settings, knows_all=number == 0)
            for number, name in enumerate(settings.lasting_workers)
        ]
        if settings.has_local:
            beside = StreamingWorker("beside", self.net, self.response_checks, settings, knows_all=False, is_local=True)
            self.workers.append(beside)
        self.workers += [
            UnaryWorker(f"poller-{number}", self.net, self.response_checks, settings)
            for number in range(settings.unary)
        ]
        self.operator = Operator(self.net, self.response_checks, self.log, settings)
        self.planner = Planner(self.net, self.response_checks, self.log, settings, templates)
        self.rules = RuntimeRules(self.log, self.response_checks)
        self.connector = Connector(self.clock, self.host, self.net, settings.faults, _stream(settings, "connections"))
        self.runtime_workers = [
            RuntimeWorker(name, self.connector, self.response_checks, self.rules, settings, knows_all=number == 0)
            for number, name in enumerate(settings.runtime_worker_names)
        ]
        self.runtime_clients = [
            RuntimeClient(
                f"runtime-client-{number}",
                self.connector,
                self.response_checks,
                self.rules,
                self.log,
                settings,
                templates,
            )
            for number in range(settings.runtime_clients)
        ]
        self.fault_injector = FaultInjector(
            self.clock, self.host, self.net, settings, self.workers, self.connector, self.runtime_workers
        )
        self._is_check_due = False

    def run(self) -> RunOutcome:
        """Runs to the end, or to the first violation."""
        with machine_sources(self.clock, _stream(self.settings, "processes")):
            return self._run()

    def _run(self) -> RunOutcome:
        failure = ""
        try:
            self.host.boot()
            self._steps_with_faults()
            self._drain()
        except (Violation, ModelViolation) as error:
            failure = str(error)
        except SimulatedCrash:
            failure = "a call reached the disk of a machine without power"
        except Exception as error:  # noqa: BLE001 - any exception of the program is a finding
            failure = f"{type(error).__name__}: {error} ({_where(error)})"
        finally:
            self.host.snapshotter.close()
            self._end_processes()
        return self._outcome(failure)

    def _end_processes(self) -> None:
        """Ends all tasks, so that the garbage collector finds none in a later run."""
        self.connector.close()
        if self.host.server is not None:
            self.host.server.loop.end()

    # -- stepping

    def _steps_with_faults(self) -> None:
        clock, events, check_steps = self.clock, self.settings.events, self.settings.check_steps
        while clock.steps < events and clock.step():
            clock.mark = self.log.position
            if clock.steps % check_steps == 0:
                self._is_check_due = True
            if self._is_check_due:
                self._check_when_level()
            elif clock.steps % _QUIET_CHECK_STEPS == 0:
                self._check_cheaply()

    def _check_cheaply(self) -> None:
        """Makes the cheap checks."""
        server = self.host.server
        if server is None:
            return
        ledger, settings = server.coordinator.ledger, self.settings
        require(ledger.position >= self.log.position, "the live state is behind what is durable")
        require(server.journal.end_position == self.log.position, "the journal and the log disagree about the end")
        noted, leases = len(server.dispatcher.progress), len(ledger.state.leases)
        require(noted <= leases, f"progress of {noted} attempts is kept, and there are {leases} leases")
        for lane in server.coordinator._lanes:  # noqa: SLF001 - a declared cap
            require(len(lane) <= settings.waiting_max, f"{len(lane)} commands wait in one lane")

    def _check_when_level(self) -> None:
        """Compares everything, as soon as the live state and the durable one are at the same position."""
        server = self.host.server
        if server is None or server.coordinator.ledger.position != self.log.position:
            return
        self._is_check_due = False
        self._check_cheaply()
        self.log.compare(server.coordinator.ledger)

    # -- the end

    def _drain(self) -> None:
        """Ends all faults; within the bound every job must have ended, and no worker may hold a lease."""
        self.fault_injector.stop()
        self.net.is_healed = True
        for client in self.clients:
            client.is_stopped = True
        for runtime_client in self.runtime_clients:
            runtime_client.is_stopped = True
        self.operator.stop()
        self.planner.stop()
        clock = self.clock
        due_ms = max((job.not_before_ms for job in self.log.model.jobs.values()), default=0)
        clock.set_wall(max(clock.wall_ms(), due_ms, self.log.model.last_ms))
        until_us = clock.now_us + DRAIN_MS_MAX * 1_000
        until_steps = clock.steps + _DRAIN_STEPS_MAX
        while not self._is_drained():
            if clock.now_us >= until_us or clock.steps >= until_steps or not clock.step():
                raise Violation(f"not drained after {clock.steady_ms()} ms: {self._left_over()}")
            clock.mark = self.log.position
        self._check_end()

    def _is_drained(self) -> bool:
        server = self.host.server
        if (
            server is None
            or self.log.backlog
            or self.log.model.schedules.kept
            or server.coordinator.ledger.position != self.log.position
            or any(client.is_waiting for client in self.runtime_clients)
            or not all(worker.is_idle for worker in self.runtime_workers)
        ):
            return False
        is_told = server.coordinator.commit.synced == self.log.position  # the notification of the last sync
        return is_told and self.clock.steps % _QUIET_CHECK_STEPS == 0

    def _left_over(self) -> str:
        model = self.log.model
        jobs = [f"{job_id} ({model.jobs[job_id]})" for job_id in model.unfinished[:3]]
        server = "" if self.host.server else "no server, "
        waiting = [client.name for client in self.runtime_clients if client.is_waiting]
        waiting += [worker.name for worker in self.runtime_workers if not worker.is_idle]
        server += f"{waiting} wait, " if waiting else ""
        return f"{len(model.unfinished)} jobs, {len(model.leases)} leases, {server}{jobs}"

    def _check_end(self) -> None:
        server = self.host.server
        assert server is not None
        self._check_cheaply()
        self.log.compare(server.coordinator.ledger)
        self.response_checks.check_kept()
        ready = server.coordinator.ledger.state.ready
        require(not ready.lanes and not ready.delayed, "jobs that do not exist are waiting")
        holders = server.dispatcher._holders  # noqa: SLF001 - an entry that is kept for ever is a leak
        require(not len(server.dispatcher.progress), "progress is kept of attempts that have ended")
        require(not holders, f"sessions are kept for the leases {sorted(holders)[:5]}, which have ended")
        self.rules.check_end()
        self._check_runs()

    def _check_runs(self) -> None:
        """Checks that a job with a reported end has run; without faults, once for each reported attempt."""
        log, runs = self.log, self.response_checks.runs
        for token in filter(self._is_run_reported, log.outcomes):
            require(runs.get(log.grants[token].job_id, 0) >= 1, f"token {token} was reported and never run")
        if not self.settings.faults:
            self._check_exactly_once()

    def _is_run_reported(self, token: int) -> bool:
        """Whether a run was reported, and not the cancel of a job that waited for a slot of its worker."""
        state = self.log.outcomes.get(token)
        return state is not None and (state != CANCELED or token in self.response_checks.ran)

    def _check_exactly_once(self) -> None:
        log = self.log
        require(log.kinds.get("Started", 0) == 1, "the coordinator started twice without a fault")
        lost = {job.id: job.losses for job in log.model.jobs.values() if job.losses}
        if self.settings.lease_ms > _CALM_LEASE_MS:
            require(not lost, f"without faults, leases were lost: {lost}")
            for job in log.model.jobs.values():
                tokens = [token for (job_id, _), some in log.tokens_of.items() if job_id == job.id for token in some]
                reported = sum(map(self._is_run_reported, tokens))
                ran = self.response_checks.runs.get(job.id, 0)
                require(ran == reported, f"job {job.id} ran {ran} times and was reported {reported} times")

    def _outcome(self, failure: str) -> RunOutcome:
        fired = self.host.counts
        missing = [fault for fault in self.settings.faults if not fired.get(fault)]
        done = {**self.response_checks.answers, **self.log.kinds}
        missing += [name for name in OPERATIONS if not done.get(name)]
        return RunOutcome(
            settings=self.settings,
            failure=failure,
            steps=self.clock.steps,
            simulated_ms=self.clock.steady_ms(),
            digest=self.clock.digest(),
            fired=dict(sorted(fired.items())),
            done=dict(sorted(done.items())),
            missing=missing,
            tail=[f"{at_us / 1_000:12.3f} ms  {kind}" for at_us, kind in self.clock.tail],
        )


#: A shorter lease may be shorter than a sync, and be lost without any fault.
_CALM_LEASE_MS = 1_000


def _stream(settings: SwarmSettings, name: str) -> random.Random:
    return random.Random(f"{name}/{settings.seed}")


def _where(error: BaseException) -> str:
    """Returns the innermost line of the program that raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "nowhere"
    return f"{trace.tb_frame.f_code.co_filename.rsplit('/', 2)[-1]}:{trace.tb_lineno}"
