"""A planner: sets, pauses, triggers and deletes schedules, and reads them.

Its responses are checked against the log, like those of clients. Once the faults are over it deletes all schedules, so
that the work ends.
"""

import random
from collections.abc import Callable

from holdfast.core import commands
from holdfast.core.commands import Refusal
from holdfast.core.ledger import Ledger
from holdfast.core.model import Now, ScheduleSpec, Template
from holdfast.ledger.coordinator import CommandLane
from holdfast_lab.simulation.ledger_view import view_schedule
from holdfast_lab.simulation.network import Network
from holdfast_lab.simulation.response_checks import ResponseChecks
from holdfast_lab.simulation.server import SimulatedServer
from holdfast_lab.simulation.swarm import SwarmSettings
from holdfast_lab.simulation.violation import require
from holdfast_lab.simulation.witness import LogWitness

_THINK_US = (20_000, 900_000)
_SET_FIRST = 2
_AGAIN_US = 200_000
_NAMES = 4
_SECOND_MS = 1_000
_EVERY_S = (1, 1, 2, 3, 7, 45)
_AHEAD_S = (-90, 0, 1, 3, 30)
_WINDOWS_MS = (0, 30_000, 90_000, 150_000)


class SchedulesSeen:
    """All schedules, and the position of the read."""

    __slots__ = ("position", "views")

    def __init__(self, ledger: Ledger, _: Now) -> None:
        self.position = ledger.position
        self.views = {name: view_schedule(schedule) for name, schedule in ledger.state.schedules.items()}


class Planner:
    """One person who manages schedules."""

    def __init__(
        self,
        net: Network,
        response_checks: ResponseChecks,
        log: LogWitness,
        settings: SwarmSettings,
        templates: list[Template],
    ) -> None:
        self._net = net
        self._response_checks = response_checks
        self._log = log
        self._templates = templates
        self._rng = random.Random(f"planner/{settings.seed}")
        self._specs: dict[str, ScheduleSpec] = {}
        self.is_stopped = False
        self._operations = (
            (self._set, 22),
            (self._set_again, 8),
            (self._pause, 14),
            (self._resume, 14),
            (self._trigger, 10),
            (self._delete, 6),
            (self._look, 15),
        )
        for _ in range(_SET_FIRST):
            net.clock.after(self._rng.randint(0, _THINK_US[0]), "planner begins", self._set)
        net.clock.after(self._rng.randint(*_THINK_US), "planner", self._act)

    def stop(self) -> None:
        """Deletes every schedule for good, once the faults are over."""
        self.is_stopped = True
        self._delete_all()

    def _act(self) -> None:
        if self.is_stopped:
            return
        (operation,) = self._rng.choices(
            [call for call, _ in self._operations], [weight for _, weight in self._operations]
        )
        operation()
        self._net.clock.after(self._rng.randint(*_THINK_US), "planner", self._act)

    def _ask(
        self, what: str, command: Callable[[SimulatedServer], commands.AnyCommand], judge: Callable[[object], None]
    ) -> None:
        def judged(reply: object) -> None:
            if isinstance(reply, Refusal):
                self._response_checks.count(f"refused {reply.reason}")
            else:
                judge(reply)
                self._response_checks.count(what)

        def send(server: SimulatedServer, done: Callable[[object], None]) -> None:
            server.coordinator.call(CommandLane.SUBMIT, command(server), done)

        self._net.ask("planner", f"planner {what}", send, judged, lambda _: None)

    def _name(self) -> str:
        return f"plan-{self._rng.randrange(_NAMES)}"

    # -- changes

    def _set(self) -> None:
        spec = self._draw(self._name())
        self._specs[spec.name] = spec
        self._say("schedule set", spec)

    def _set_again(self) -> None:
        """Sets an existing schedule again, as programs do at every start."""
        if self._specs:
            self._say("schedule set again", self._rng.choice(list(self._specs.values())))

    def _say(self, what: str, spec: ScheduleSpec) -> None:
        def judge(_: object) -> None:
            is_known = spec in [known for _, known in self._log.schedules.get(spec.name, ())]
            require(is_known, f"the schedule {spec.name} was acknowledged before it was durable")

        self._ask(what, lambda _: commands.SetSchedule(spec), judge)

    def _draw(self, name: str) -> ScheduleSpec:
        rng = self._rng
        kind = rng.choice(["every", "every", "every", "at", "cron"])
        now_s = self._log.model.last_ms // _SECOND_MS
        at_ms = max(1, now_s + rng.choice(_AHEAD_S)) * _SECOND_MS
        return ScheduleSpec(
            name,
            rng.choice(self._templates),
            rng.choice([b"", b"planned"]),
            cron="* * * * *" if kind == "cron" else "",
            every_ms=rng.choice(_EVERY_S) * _SECOND_MS if kind == "every" else 0,
            at_ms=at_ms if kind == "at" else 0,
            timezone=rng.choice(["UTC", "Asia/Tokyo"]),
            catch_up=rng.choice(["none", "latest", "all"]),
            catch_up_window_ms=rng.choice(_WINDOWS_MS),
            overlap=rng.choice(["allow", "skip", "cancel_running"]),
            jitter_ms=rng.choice([0, 0, 400]),
        )

    def _pause(self) -> None:
        name = self._name()
        self._ask("schedule paused", lambda _: commands.PauseSchedule(name, is_paused=True), lambda _: None)

    def _resume(self) -> None:
        name = self._name()
        self._ask("schedule resumed", lambda _: commands.PauseSchedule(name, is_paused=False), lambda _: None)

    def _trigger(self) -> None:
        name = self._name()

        def judge(job_id: object) -> None:
            require(self._log.is_known(str(job_id)), f"job {job_id} was triggered before it was durable")

        self._ask("schedule triggered", lambda server: commands.TriggerSchedule(name, server.mint()), judge)

    def _delete(self, name: str = "") -> None:
        name = name or self._name()
        before = self._log.position

        def judge(_: object) -> None:
            is_deleted = any(at > before and spec is None for at, spec in self._log.schedules.get(name, ()))
            require(is_deleted, f"the end of schedule {name} was acknowledged before it was durable")

        self._ask("schedule deleted", lambda _: commands.DeleteSchedule(name), judge)

    def _delete_all(self) -> None:
        for name in list(self._log.model.schedules.kept):
            self._delete(name)
        # Repeated until the end: a command that sets a schedule may still be in transit.
        self._net.clock.after(_AGAIN_US, "planner deletes all", self._delete_all)

    # -- reads

    def _look(self) -> None:
        def judge(seen: object) -> None:
            assert isinstance(seen, SchedulesSeen)
            require(seen.position <= self._log.position, "schedules were shown before they were durable")
            if seen.position == self._log.position:
                expected = {name: schedule.view() for name, schedule in self._log.model.schedules.kept.items()}
                require(seen.views == expected, "the schedules that were shown are not what the log gives")
            self._response_checks.count("schedules")

        def send(server: SimulatedServer, done: Callable[[object], None]) -> None:
            server.coordinator.read(CommandLane.LIST, SchedulesSeen, done)

        self._net.ask("planner", "planner looks", send, lambda reply: _unless_refused(reply, judge), lambda _: None)


def _unless_refused(reply: object, judge: Callable[[object], None]) -> None:
    if not isinstance(reply, Refusal):
        judge(reply)
