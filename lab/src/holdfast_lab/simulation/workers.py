"""Streaming workers: they take leases, run jobs, and repeat their reports until these are acknowledged.

A worker can be paused past its leases and report late, die with everything it held, be cut off and reconnect naming the
leases that it still holds, report twice, and report another outcome the second time.
"""

import itertools
import random

from holdfast.core.commands import GrantedLease, ReportRow
from holdfast.core.lifecycle import CANCELED, DONE, FAILED
from holdfast.core.model import Note
from holdfast.ledger.sessions import Hello, Session, SessionPush
from holdfast_lab.simulation.jobs import POISON, all_routes, draw_end
from holdfast_lab.simulation.network import Network, Stream
from holdfast_lab.simulation.response_checks import ResponseChecks
from holdfast_lab.simulation.scheduler import Call
from holdfast_lab.simulation.server import SimulatedServer
from holdfast_lab.simulation.swarm import SwarmSettings

_RECONNECT_US = (500, 300_000)
_WELCOME_US = 1_500_000
_WINDOW = 4
_IDLE_BEAT_MS = 40
_BATCH_US = (0, 8_000)
_ON_ITS_WAY_US = 100_000
_SERVES_US = 6_000_000
_DEAD_US = (2_000, 2_000_000)
#: Every fifth token has an output that is larger by this factor, which exceeds the reserved space.
_LARGE_EVERY, _LARGE = 5, 100


class SimulatedRun:
    """One job being run."""

    __slots__ = ("is_canceled", "lease")

    def __init__(self, lease: GrantedLease) -> None:
        self.lease = lease
        self.is_canceled = False


class StreamingWorker:
    """One worker id, over its connections and deaths."""

    def __init__(
        self,
        name: str,
        net: Network,
        response_checks: ResponseChecks,
        settings: SwarmSettings,
        *,
        knows_all: bool,
        is_local: bool = False,
    ) -> None:
        """A local worker is a part or a child of the coordinator's process, and dies with it."""
        self.name = name
        self._is_local = is_local
        if is_local:
            net.host.on_down.append(self.die)
        self._net = net
        self._response_checks = response_checks
        self._settings = settings
        self._rng = random.Random(f"{name}/{settings.seed}")
        self._routes, self._queues = self._draw_appetite(knows_all=knows_all)
        self._stream: Stream | None = None
        self._is_welcome = False
        self._is_draining = False
        self._life = 0
        self._paused_until_us = 0
        self.running: dict[int, SimulatedRun] = {}
        self._batch: list[ReportRow] = []
        self._unheard: dict[int, list[ReportRow]] = {}
        self._report_id = 0
        self._said = 0
        net.clock.after(self._rng.randint(0, 20_000), f"{name} up", self._connect)

    def _draw_appetite(self, *, knows_all: bool) -> tuple[frozenset[str], frozenset[str]]:
        routes = all_routes(self._settings)
        if knows_all:
            return routes, frozenset()
        some = self._rng.sample(sorted(routes), self._rng.randint(1, len(routes)))
        queues = [f"queue-{number}" for number in range(self._settings.queues) if self._rng.random() < 0.5]  # noqa: PLR2004
        return frozenset(some), frozenset(queues)

    # -- time

    def _later(self, delay_us: int, what: str, call: Call) -> None:
        """Plans a call of this run of the worker's process; a paused worker makes it when it continues."""
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

    # -- connections

    def _connect(self) -> None:
        if self._stream is not None:
            return
        held = {*self.running, *(row.token for rows in self._unheard.values() for row in rows)}
        held.update(row.token for row in self._batch)
        life = self._life
        hello = Hello(
            self.name,
            self._routes,
            self._queues,
            self._settings.slots,
            frozenset(held),
            f"life-{life}",
            self._is_local,
        )
        stream = self._net.open_stream(
            self.name, hello, self._on_push, lambda: self._later(0, "closed", self._on_closed)
        )
        stream.judge = lambda push: self._judge(push, hello.held, life)
        self._stream = stream
        self._is_welcome = self._is_draining = False
        if held:
            self._response_checks.count("attach with leases")
        self._said = 0
        self._say()
        self._later(_WELCOME_US, "welcome?", lambda: self._give_up_on(stream))
        self._later(int(self._rng.expovariate(1) * _SERVES_US), "drain", lambda: self._drain(stream))
        self._later(self._settings.beat_ms * 1_000, "beat", lambda: self._beat(stream))

    def _give_up_on(self, stream: Stream) -> None:
        if self._stream is stream and not self._is_welcome:
            stream.abandon()
            self._on_closed()

    def _on_closed(self) -> None:
        self._stream = None
        self._later(self._rng.randint(*_RECONNECT_US), "up", self._connect)

    def break_stream(self, *, is_reset: bool = False) -> bool:
        """Breaks or resets the connection; returns whether there was one."""
        if self._stream is None:
            return False
        self._stream.break_off(is_reset=is_reset)
        return True

    def die(self) -> None:
        """Ends the process (kill -9) with its state; it restarts under the same name."""
        self._life += 1
        if self._stream is not None:
            self._stream.abandon()
        self._stream = None
        self.running.clear()
        self._unheard.clear()
        self._batch = []
        self._later(self._rng.randint(*_DEAD_US), "up", self._connect)

    def _beat(self, stream: Stream) -> None:
        if self._stream is not stream:
            return
        stream.send(f"{self.name} heartbeat", lambda server, session: server.dispatcher.heartbeat(session))
        beat_ms = self._settings.beat_ms if self.running else max(self._settings.beat_ms, _IDLE_BEAT_MS)
        self._later(beat_ms * 1_000, "beat", lambda: self._beat(stream))

    def _drain(self, stream: Stream) -> None:
        """Sometimes redeploys a worker; not at the end of a run, because that would repair too much."""
        if self._stream is not stream or self._net.is_healed:
            return
        self._is_draining = True
        stream.send(f"{self.name} drain", lambda server, session: server.dispatcher.drain(session))
        self._response_checks.count("drain")
        # Leases that were granted before the coordinator received the drain are still in transit.
        self._later(_ON_ITS_WAY_US, "draining", lambda: self._leave_when_idle(stream))

    def _leave_when_idle(self, stream: Stream) -> None:
        if self._stream is not stream:
            return
        if self.running or self._unheard or self._batch:
            self._later(20_000, "draining", lambda: self._leave_when_idle(stream))
            return
        stream.hang_up()
        self._on_closed()

    # -- pushes of the coordinator

    def _judge(self, push: SessionPush, held: frozenset[int], life: int) -> None:
        """Checks every push to this worker when it leaves the coordinator, whether it arrives or not."""
        if push.is_welcome and self._net.host.had_room:
            self._response_checks.welcomed(self.name, held, self._net.host.current_leases())
        if push.leases:
            self._response_checks.leased(self.name, push.leases)
        if push.reported and life == self._life:
            for report_id in [known for known in self._unheard if known <= push.reported]:
                self._response_checks.acknowledged(self.name, self._unheard[report_id])

    def _on_push(self, stream: Stream, push: SessionPush) -> None:
        self._later(0, "reads", lambda: self._read(stream, push))

    def _read(self, stream: Stream, push: SessionPush) -> None:
        if self._stream is not stream:
            return
        if push.is_drain_asked:
            self._response_checks.count("drain asked")
            self._drain(stream)
        if push.is_welcome:
            self._is_welcome = True
            self._give_credits(self._settings.slots - len(self.running))
        for token in push.revoked:
            self._response_checks.count("revoked")
            if self.running.pop(token, None):
                self._give_credits(1)
        for token in push.cancels:
            self._response_checks.count("cancel heard")
            if token in self.running:
                self.running[token].is_canceled = True
        for report_id in [known for known in self._unheard if known <= push.reported]:
            del self._unheard[report_id]
        self._say()
        for lease in push.leases:
            self._take(lease)

    def _give_credits(self, count: int) -> None:
        stream = self._stream
        if stream is not None and count > 0 and not self._is_draining:
            stream.send(
                f"{self.name} credits",
                lambda server, session: server.dispatcher.grant_credits(session, count),
            )

    # -- running jobs

    def _take(self, lease: GrantedLease) -> None:
        if self._stream is not None and self._rng.random() < 0.05:  # noqa: PLR2004 - sometimes it releases the lease
            tokens = frozenset([lease.token])
            self._stream.send(
                f"{self.name} release", lambda server, session: server.dispatcher.release(session, tokens)
            )
            self._response_checks.count("release")
            self._give_credits(1)
            return
        self._response_checks.started(self.name, lease)
        self.running[lease.token] = SimulatedRun(lease)
        if lease.payload.startswith(POISON):
            self._response_checks.count("poisoned")
            self.die()
            return
        run_us = self._rng.randint(0, 2_000 * self._settings.run_ms)
        if self._rng.random() < 0.3:  # noqa: PLR2004 - some send notes
            self._later(self._rng.randint(0, run_us), "notes", lambda: self._note(lease))
        self._later(run_us, "finished", lambda: self._finish(lease, run_us // 1_000))

    def _note(self, lease: GrantedLease) -> None:
        """Sends a note, whether the job still runs or not: the coordinator must refuse one under an expired lease."""
        note = Note(lease.job_id, lease.token, self._rng.randint(-1, 1_001), "on its way", ("a line",))
        if self._stream is not None:
            self._stream.send(f"{self.name} note", lambda server, session: server.dispatcher.note(session, [note]))

    def _finish(self, lease: GrantedLease, runtime_ms: int) -> None:
        run = self.running.pop(lease.token, None)
        if run is None:
            if self._net.hits("late-report"):
                self._add(self._row(lease, runtime_ms, DONE))
            return
        end = CANCELED if run.is_canceled and self._rng.random() < 0.8 else draw_end(self._rng)  # noqa: PLR2004
        row = self._row(lease, runtime_ms, end)
        self._add(row)
        if self._net.hits("twice-report"):
            other = self._row(lease, runtime_ms, self._rng.choice([end, DONE, FAILED]))
            if self._rng.random() < 0.5:  # noqa: PLR2004 - in the same message, or in another
                self._add(other)
            else:
                self._later(self._rng.randint(0, 200_000), "again", lambda: self._add(other))
        self._give_credits(1)

    def _row(self, lease: GrantedLease, runtime_ms: int, state: int) -> ReportRow:
        output = self._rng.randbytes(self._rng.randint(0, 40)) if state == DONE else b""
        if lease.token % _LARGE_EVERY == 0:
            output *= _LARGE
        reason = "BROKEN" if state == FAILED else ""
        is_retryable = self._rng.random() < 0.8  # noqa: PLR2004
        retry_after_ms = self._rng.choice([0, 0, 0, 50])
        return ReportRow(
            lease.job_id, lease.token, state, output, "ran", reason, runtime_ms, is_retryable, retry_after_ms
        )

    def _add(self, row: ReportRow) -> None:
        self._batch.append(row)
        if len(self._batch) == 1:
            self._later(self._rng.randint(*_BATCH_US), "reports", self._flush)

    def _flush(self) -> None:
        rows, self._batch = self._batch, []
        self._report_id += 1
        self._unheard[self._report_id] = rows
        self._say()
        report_id, stream = self._report_id, self._stream
        self._later(_WELCOME_US, "heard?", lambda: self._repeat(report_id, stream))

    def _repeat(self, report_id: int, stream: Stream | None) -> None:
        """Repeats all unacknowledged reports in order, after a long silence on a connection that seems fine."""
        if report_id in self._unheard and self._stream is not None and self._stream is stream:
            self._said = 0
            self._say()
            self._later(_WELCOME_US, "heard?", lambda: self._repeat(report_id, stream))

    def _say(self) -> None:
        """Sends the reports that were not sent on this connection, a few at a time and in order."""
        for report_id, rows in itertools.islice(self._unheard.items(), _WINDOW):
            if report_id > self._said and self._stream is not None:
                self._said = report_id
                self._send_report(self._stream, report_id, rows)

    def _send_report(self, stream: Stream, report_id: int, rows: list[ReportRow]) -> None:
        def report(server: SimulatedServer, session: Session) -> None:
            server.dispatcher.report(session, report_id, rows)

        stream.send(f"{self.name} report", report)
