"""Polling workers: Lease, Extend and Report as single calls, whose responses may be lost."""

import random
from collections.abc import Callable

from holdfast.core import commands
from holdfast.core.commands import GrantedLease, Heard, Refusal, ReportReply, ReportRow
from holdfast.core.lifecycle import CANCELED, DONE, FAILED
from holdfast.core.model import Note
from holdfast.ledger.coordinator import CommandLane
from holdfast_lab.simulation.jobs import POISON, all_routes, draw_end
from holdfast_lab.simulation.network import Network
from holdfast_lab.simulation.response_checks import ResponseChecks
from holdfast_lab.simulation.server import SimulatedServer
from holdfast_lab.simulation.swarm import SwarmSettings

_TIMEOUT_US = 600_000
_IDLE_US = (2_000, 60_000)
_TRIES = 4
#: A grant younger than this may still be in transit.
_GRACE_MS = 1_500


class UnaryWorker:
    """One worker id; it runs one batch after the other, and extends its leases meanwhile."""

    def __init__(self, name: str, net: Network, response_checks: ResponseChecks, settings: SwarmSettings) -> None:
        self.name = name
        self._net = net
        self._response_checks = response_checks
        self._settings = settings
        self._rng = random.Random(f"{name}/{settings.seed}")
        self._life = 0
        self._paused_until_us = 0
        self._asked = 0
        self.running: dict[int, GrantedLease] = {}
        self._later(self._rng.randint(0, 20_000), "up", self._fetch)
        self._later(settings.beat_ms * 1_000, "beat", self._beat)

    def _later(self, delay_us: int, what: str, call: Callable[[], None]) -> None:
        life = self._life

        def run() -> None:
            wait_us = self._paused_until_us - self._net.clock.now_us
            if self._life != life:
                return
            if wait_us > 0:
                self._net.clock.after(wait_us, f"{self.name} {what}", run)
            else:
                call()

        self._net.clock.after(delay_us, f"{self.name} {what}", run)

    def pause(self, for_us: int) -> None:
        """SIGSTOP, then SIGCONT."""
        self._paused_until_us = self._net.clock.now_us + for_us

    def heal(self) -> None:
        """Ends the pause."""
        self._paused_until_us = 0

    def die(self) -> None:
        """Ends the process (kill -9); it restarts under the same name."""
        self._life += 1
        self.running.clear()
        self._later(self._rng.randint(*_IDLE_US), "up", self._fetch)
        self._later(self._settings.beat_ms * 1_000, "beat", self._beat)

    # -- fetching jobs

    def _fetch(self) -> None:
        self._asked += 1
        asked, life, rng = self._asked, self._life, self._rng
        room = self._settings.slots - len(self.running)
        if room <= 0:
            self._later(rng.randint(*_IDLE_US), "fetch", self._fetch)
            return
        command = commands.GrantLeases(
            self.name, all_routes(self._settings), frozenset(), rng.randint(1, room), self._settings.lease_ms
        )

        def send(server: SimulatedServer, done: Callable[[object], None]) -> None:
            server.coordinator.call(CommandLane.WORK, command, done)

        def judge(reply: object) -> None:
            if not isinstance(reply, Refusal):
                assert isinstance(reply, list)
                self._response_checks.leased(self.name, reply)
                self._response_checks.count("unary lease" if reply else "unary lease of nothing")

        def hear(reply: object) -> None:
            self._later(0, "leases", lambda: self._take(reply, asked) if life == self._life else None)

        self._later(_TIMEOUT_US, "fetch?", lambda: self._fetch_again(asked))
        self._net.ask(self.name, f"{self.name} lease", send, judge, hear)

    def _fetch_again(self, asked: int) -> None:
        if asked == self._asked:
            self._fetch()

    def _take(self, reply: object, asked: int) -> None:
        """Takes the first response; the leases of a late or repeated one are not run, and expire."""
        if asked != self._asked:
            return
        self._asked += 1
        for lease in reply if isinstance(reply, list) else []:
            if self._take_one(lease):
                return
        self._later(self._rng.randint(*_IDLE_US), "fetch", self._fetch)

    def _take_one(self, lease: GrantedLease) -> bool:
        self._response_checks.started(self.name, lease)
        self.running[lease.token] = lease
        if lease.payload.startswith(POISON):
            self._response_checks.count("poisoned")
            self.die()
            return True
        run_us = self._rng.randint(0, 2_000 * self._settings.run_ms)
        if self._rng.random() < 0.4:  # noqa: PLR2004 - some send notes, and some too late
            self._later(self._rng.randint(0, 2 * run_us), "note", lambda: self._note(lease))
        self._later(run_us, "finished", lambda: self._finish(lease, run_us // 1_000))
        return False

    # -- reports

    def _finish(self, lease: GrantedLease, runtime_ms: int) -> None:
        self.running.pop(lease.token, None)
        rng = self._rng
        end = draw_end(rng)
        token = 0 if rng.random() < 0.3 else lease.token  # noqa: PLR2004 - the frozen contract has no tokens
        row = ReportRow(lease.job_id, token, end, b"out" if end == DONE else b"", "ran", "", runtime_ms)
        self._report([row], _TRIES)
        if self._net.hits("twice-report"):
            other = ReportRow(lease.job_id, lease.token, rng.choice([DONE, FAILED, CANCELED]), b"again")
            self._later(rng.randint(0, 100_000), "again", lambda: self._report([other], 1))

    def _report(self, rows: list[ReportRow], tries: int) -> None:
        command = commands.Report(self.name, rows)
        is_heard = False

        def send(server: SimulatedServer, done: Callable[[object], None]) -> None:
            server.coordinator.call(CommandLane.WORK, command, done)

        def hear(reply: object) -> None:
            nonlocal is_heard
            is_heard = is_heard or isinstance(reply, ReportReply)

        def again() -> None:
            if not is_heard and tries > 1:
                self._report(rows, tries - 1)

        self._net.ask(
            self.name,
            f"{self.name} report",
            send,
            lambda reply: self._response_checks.reported_reply(command, reply),
            hear,
        )
        self._later(_TIMEOUT_US, "reported?", again)

    def _note(self, lease: GrantedLease) -> None:
        note = Note(lease.job_id, lease.token, self._rng.randint(0, 1_000), f"note {self._rng.randrange(10**9)}")
        command = commands.TakeNotes(self.name, [note])

        def send(server: SimulatedServer, done: Callable[[object], None]) -> None:
            server.coordinator.call(CommandLane.WORK, command, done)

        self._net.ask(
            self.name,
            f"{self.name} note",
            send,
            lambda reply: self._response_checks.noted_reply(command, reply),
            lambda _: None,
        )

    def _beat(self) -> None:
        command = commands.Extend(self.name, self._settings.lease_ms, frozenset(self.running), _GRACE_MS)

        def send(server: SimulatedServer, done: Callable[[object], None]) -> None:
            server.coordinator.call(CommandLane.WORK, command, done)

        def judge(reply: object) -> None:
            if isinstance(reply, Heard):
                self._response_checks.count("unary extend")

        if self.running:
            self._net.ask(self.name, f"{self.name} extend", send, judge, lambda _: None)
        self._later(self._settings.beat_ms * 1_000, "beat", self._beat)
