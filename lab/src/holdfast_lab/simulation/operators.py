"""An operator: pauses, drains and opens queues, purges them, drains workers, and reads statistics.

Its responses are checked against the log, like those of clients. A queue is closed only for a while, and all queues are
opened once the faults are over.
"""

import random
from collections.abc import Callable

from holdfast.core import commands
from holdfast.core.commands import Refusal
from holdfast.core.ledger import Ledger
from holdfast.core.lifecycle import CANCELED, QUEUED, RUNNING
from holdfast.core.model import JobRecord, Now, QueueMode
from holdfast.core.overview import QueueView, queue_stats
from holdfast.ledger.coordinator import CommandLane
from holdfast_lab.simulation.network import Network
from holdfast_lab.simulation.response_checks import ResponseChecks
from holdfast_lab.simulation.server import SimulatedServer
from holdfast_lab.simulation.swarm import SwarmSettings
from holdfast_lab.simulation.violation import require
from holdfast_lab.simulation.witness import LogWitness

_THINK_US = (5_000, 250_000)
_CLOSED_US = (5_000, 900_000)
_AGAIN_US = 200_000
_PURGED_MAX = 12
_BUDGETS = (1, 7, 200)


class SearchSeen:
    """One slice of a search from a position on, and the position of the read."""

    __slots__ = ("after", "ids", "newest_first", "place", "position", "size")

    def __init__(self, ledger: Ledger, rng: random.Random) -> None:
        self.position = ledger.position
        self.newest_first = rng.random() < 0.5  # noqa: PLR2004 - a coin
        self.size = rng.randint(1, 20)
        ids = list(ledger.state.jobs)
        first = ledger.state.jobs[rng.choice(ids)] if ids and rng.random() < 0.7 else None  # noqa: PLR2004
        self.after = (first.created_ms, first.id) if first else None
        jobs, self.place = ledger.scan(
            [], self.after, self.size, rng.choice(_BUDGETS), newest_first=self.newest_first, wants=_is_wanted
        )
        self.ids = [job.id for job in jobs]


class QueuesSeen:
    """The statistics of all queues, and the time of the read."""

    __slots__ = ("now_ms", "position", "views")

    def __init__(self, ledger: Ledger, now: Now) -> None:
        self.position = ledger.position
        self.now_ms = now.log_ms
        self.views: list[QueueView] = queue_stats(ledger, now.log_ms)


def _is_wanted(job: JobRecord) -> bool:
    return job.number % 2 == 1


class Operator:
    """One person with a command line, one request at a time."""

    def __init__(self, net: Network, response_checks: ResponseChecks, log: LogWitness, settings: SwarmSettings) -> None:
        self._net = net
        self._response_checks = response_checks
        self._log = log
        self._settings = settings
        self._rng = random.Random(f"operator/{settings.seed}")
        self.is_stopped = False
        self._operations = (
            (self._close, 25),
            (self._purge, 15),
            (self._drain_worker, 8),
            (self._search, 20),
            (self._look, 20),
        )
        net.clock.after(self._rng.randint(*_THINK_US), "operator", self._act)

    def stop(self) -> None:
        """Opens every queue for good, once the faults are over."""
        self.is_stopped = True
        self._open_all()

    def _act(self) -> None:
        if self.is_stopped:
            return
        (operation,) = self._rng.choices(
            [call for call, _ in self._operations], [weight for _, weight in self._operations]
        )
        operation()
        self._net.clock.after(self._rng.randint(*_THINK_US), "operator", self._act)

    def _ask(
        self,
        what: str,
        send: Callable[[SimulatedServer, Callable[[object], None]], None],
        judge: Callable[[object], None],
    ) -> None:
        def judged(reply: object) -> None:
            if isinstance(reply, Refusal):
                self._response_checks.count(f"refused {reply.reason}")
            else:
                judge(reply)

        self._net.ask("operator", f"operator {what}", send, judged, lambda _: None)

    # -- queues

    def _close(self) -> None:
        queue = f"queue-{self._rng.randrange(self._settings.queues)}"
        self._set_mode(queue, self._rng.choice([QueueMode.PAUSED, QueueMode.PAUSED, QueueMode.DRAINING]))
        self._net.clock.after(
            self._rng.randint(*_CLOSED_US), "operator opens", lambda: self._set_mode(queue, QueueMode.OPEN)
        )

    def _open_all(self) -> None:
        for queue in list(self._log.model.modes):
            self._set_mode(queue, QueueMode.OPEN)
        # Repeated until the end: a command that closes a queue may still be in transit.
        self._net.clock.after(_AGAIN_US, "operator opens all", self._open_all)

    def _set_mode(self, queue: str, mode: QueueMode) -> None:
        command = commands.SetQueueMode(queue, mode, self._rng.choice(["", "maintenance"]))

        def send(server: SimulatedServer, done: Callable[[object], None]) -> None:
            before = self._log.mode_at(queue, self._log.position), self._log.position

            def told(reply: object) -> None:
                if not isinstance(reply, Refusal):
                    self._check_mode(command, *before)
                done(reply)

            server.coordinator.call(CommandLane.SUBMIT, command, told)

        self._ask("mode", send, lambda _: self._response_checks.count(f"mode {mode.name}"))

    def _check_mode(self, command: commands.SetQueueMode, mode: QueueMode, position: int) -> None:
        """Checks that an acknowledged mode is in the log, or was the mode when the command was sent."""
        since = [after for at, after in self._log.modes.get(command.queue, ()) if at > position]
        is_durable = command.mode in [mode, *since]
        require(is_durable, f"the mode of {command.queue} was acknowledged before it was durable")

    def _purge(self) -> None:
        waiting = [job.id for job in self._log.model.jobs.values() if job.state == QUEUED]
        if not waiting:
            return
        ids = self._rng.sample(waiting, min(len(waiting), self._rng.randint(1, _PURGED_MAX)))
        command = commands.CancelQueued([*ids, "nobody"], "purged")

        def send(server: SimulatedServer, done: Callable[[object], None]) -> None:
            server.coordinator.call(CommandLane.SUBMIT, command, done)

        self._ask("purge", send, self._check_purged)

    def _check_purged(self, reply: object) -> None:
        assert isinstance(reply, list)
        for job_id in reply:
            job = self._log.model.jobs.get(job_id)
            is_ended = job is None or job.state == CANCELED or not self._log.is_single(job_id)
            require(is_ended, f"job {job_id} was reported as canceled before it was durable")
        self._response_checks.count("purge" if reply else "purge of nothing")

    # -- workers

    def _drain_worker(self) -> None:
        worker = f"worker-{self._rng.randrange(self._settings.streaming)}"

        def send(server: SimulatedServer, done: Callable[[object], None]) -> None:
            done(server.dispatcher.ask_drain(worker))

        self._ask(
            "drain", send, lambda is_asked: self._response_checks.count("worker asked to drain") if is_asked else None
        )

    # -- reads

    def _search(self) -> None:
        rng = self._rng

        def send(server: SimulatedServer, done: Callable[[object], None]) -> None:
            server.coordinator.read(CommandLane.LIST, lambda ledger, _: SearchSeen(ledger, rng), done)

        self._ask("search", send, self._check_search)

    def _check_search(self, seen: object) -> None:
        assert isinstance(seen, SearchSeen)
        require(seen.position <= self._log.position, "a search left before what it saw was durable")
        if seen.position == self._log.position:
            self._compare_search(seen)
        self._response_checks.count("search")

    def _compare_search(self, seen: SearchSeen) -> None:
        """Checks that the result is the part of the log's order between the two positions."""
        sign = -1 if seen.newest_first else 1
        rows = sorted((sign * job.created_ms, job.id, job.number) for job in self._log.model.jobs.values())
        low = (sign * seen.after[0], seen.after[1]) if seen.after else (-(1 << 62), "")
        high = (sign * seen.place[0], seen.place[1]) if seen.place else (1 << 62, "")
        expected = [job_id for ms, job_id, number in rows if low < (ms, job_id) <= high and number % 2]
        require(seen.ids == expected, f"a search past {seen.after} up to {seen.place} is not what the log gives")
        require(len(seen.ids) <= seen.size, "a search found more than requested")

    def _look(self) -> None:
        def send(server: SimulatedServer, done: Callable[[object], None]) -> None:
            server.coordinator.read(CommandLane.LIST, QueuesSeen, done)

        self._ask("queues", send, self._check_queues)

    def _check_queues(self, seen: object) -> None:
        assert isinstance(seen, QueuesSeen)
        require(seen.position <= self._log.position, "statistics left before what they saw was durable")
        if seen.position == self._log.position:
            for view in seen.views:
                self._compare_queue(view, seen.now_ms)
            waiting = sum(view.ready + view.delayed + view.running for view in seen.views)
            require(waiting == self._log.backlog, f"the queues hold {waiting} jobs, the log {self._log.backlog}")
        self._response_checks.count("queues")

    def _compare_queue(self, view: QueueView, now_ms: int) -> None:
        jobs = [job for job in self._log.model.jobs.values() if job.lane[0] == view.name]
        queued = [job for job in jobs if job.state == QUEUED]
        ready = sum(job.not_before_ms <= now_ms for job in queued)
        running = sum(job.state == RUNNING for job in jobs)
        found = (view.mode, view.ready, view.delayed, view.running)
        expected = (self._log.mode_at(view.name, self._log.position), ready, len(queued) - ready, running)
        require(found == expected, f"{view.name} was reported with {found}, the log has {expected}")
