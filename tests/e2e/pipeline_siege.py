"""Every role of the pipeline as processes of their own around one PostgreSQL, and the one who breaks them."""

import contextlib
import json
import os
import random
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.errors import ExitCode
from holdfast.process.private_postgres import PrivatePostgres
from tests.e2e.app_jobs import ROOT
from tests.e2e.fleet import Fleet, Program, stable_port
from tests.e2e.pipeline_app import RUNS
from tests.e2e.pipeline_facts import Facts
from tests.e2e.waiting import eventually, pause
from tests.postgres import QUICK

#: How many processes each role has.
COUNTS = {
    "scheduler": 2,
    "normal": 2,
    "high": 2,
    "exchange": 2,
    "coordinator": 1,
    "watcher": 2,
    "gateway": 1,
    "worker": 2,
}
ROLES = tuple(COUNTS)
#: How many of those that are started again are killed before they are ready.
_STARTING = 0.2
#: Whoever stands still is waited for no longer than this by anybody.
LEASE_MS = 2_000
_ENVIRONMENT = {"HOLDFAST_HEARTBEAT_MS": "400", "HOLDFAST_RATE_LIMIT": "0", "PYTHONPATH": ROOT}
_COMMANDS = {
    "scheduler": "scheduler --leader-ms 1500",
    "normal": "queue --type normal --index {index}",
    "high": "queue --type high --index {index}",
    "exchange": "exchange --normal {normal} --high {high}",
    "coordinator": "coordinator --normal {normal} --high {high} --heartbeat-ms 400",
    "watcher": "watcher --exchanges {exchange} --poll-ms 500 --visibility-ms 2500",
    "gateway": "gateway --schedulers {scheduler} --grpc-port {grpc} --no-http --check-ms 500",
    "worker": "worker --coordinator {coordinator} --worker-id w{index} --concurrency 4"
    f" --lease-ms {LEASE_MS} --app tests.e2e.pipeline_app:app",
}


class Seat:
    """A place in the picture, and the process that has it now."""

    def __init__(self, fleet: Fleet, role: str, command: list[str], environment: dict[str, str]) -> None:
        self.role = role
        self._fleet = fleet
        self._command = command
        self._environment = environment
        self.program: Program = self._start()
        #: How it ended, though nobody had killed it.
        self.strange: list[str] = []

    def _start(self) -> Program:
        return self._fleet.start(*self._command, **self._environment)

    def kill(self) -> None:
        """As a power cut would; another one is started at once."""
        self.program.kill()
        self.program = self._start()

    def tend(self) -> bool:
        """Whether it is ready; one that found no database when it came is started again."""
        if self.program.is_running():
            return any(json.loads(line).get("event") == "ready" for line in self.program.output.splitlines())
        status = self.program.wait()
        if self.program.output or status != ExitCode.UNREACHABLE:
            self.strange.append(f"{' '.join(self._command)} ended with {status}: {self.program.log[-2_000:]}")
        self.program = self._start()
        return False


class Siege:
    """Breaks one thing after the other; what is killed is started again at once."""

    def __init__(self, fleet: Fleet, folder: Path, draw: random.Random) -> None:
        self._fleet = fleet
        self._draw = draw
        self.server = PrivatePostgres(folder / "pg", QUICK)
        self.faults: Counter[str] = Counter()
        self.runs = folder / "runs"
        self.runs.touch()
        url = self.server.start()
        self.facts = Facts(url)
        self._held = [held_port() for _ in range(1 + sum(COUNTS.values()))]
        ports = iter([held.getsockname()[1] for held in self._held])
        self._grpc = next(ports)
        taken = {role: [str(next(ports)) for _ in range(count)] for role, count in COUNTS.items()}
        words = {"grpc": str(self._grpc), **{role: ",".join(of_role) for role, of_role in taken.items()}}
        environment = {**_ENVIRONMENT, "HOLDFAST_DATABASE": url, RUNS: str(self.runs)}
        self.seats = {role: list[Seat]() for role in ROLES}
        for role in ROLES:
            for index, port in enumerate(taken[role]):
                arguments = _COMMANDS[role].format(index=index, **words).split()
                command = ["pipeline", arguments[0], "--port", port, *arguments[1:], "--log-format", "json"]
                self.seats[role].append(Seat(fleet, role, command, environment))

    @property
    def target(self) -> str:
        """Where clients go."""
        return f"127.0.0.1:{self._grpc}"

    def strange(self) -> list[str]:
        """Whoever ended by itself, though nobody had killed it."""
        return [words for seat in self._all() for words in seat.strange]

    def odd_lines(self) -> list[str]:
        """What anybody has logged that is no line of the log, nor why it cannot begin, or that it has a bug."""
        lines = [line for program in self._fleet.programs for line in program.log.splitlines()]
        return [line for line in lines if not line.startswith(("{", "holdfast: ")) or '"event":"bug"' in line]

    def wait_for(self, role: str) -> None:
        """Until everybody in the role is ready."""
        eventually(lambda: [seat.tend() for seat in self.seats[role]], all, what=f"every {role}")

    def wait_for_all(self) -> None:
        """Until everybody is ready."""
        for role in ROLES:
            self.wait_for(role)

    def end(self) -> None:
        """The database goes last; the fleet ends whoever is left."""
        for seat in self._all():
            seat.program.kill()
        for held in self._held:
            held.close()
        self.facts.close()
        self.server.stop()

    def _all(self) -> Iterator[Seat]:
        return (seat for of_role in self.seats.values() for seat in of_role)

    # -- what is broken

    def kill(self, role: str) -> None:
        """One of them, once all of the role are ready; and perhaps the next one while it starts."""
        self.wait_for(role)
        pause(self._draw.uniform(0, 0.3))
        victim = self._draw.choice(self.seats[role])
        victim.kill()
        self.faults[role] += 1
        if self._draw.random() < _STARTING:
            pause(self._draw.uniform(0, 1))
            if not victim.tend():
                victim.kill()
                self.faults["starting"] += 1

    def crash_database(self) -> None:
        """As `pg_ctl stop -m immediate` does; it comes back by itself."""
        self.server.crash()
        self.faults["crash"] += 1
        eventually(self.facts.is_there, what="the database")

    def stop_leader(self) -> None:
        """Whoever fires schedules stands still until another one has fired, and goes on as if nothing had been."""
        self.wait_for("scheduler")
        leader = eventually(self._leader, lambda seat: seat is not None, what="a leader")
        assert leader is not None
        with self._standing_still([leader.program.pid]):
            eventually(self._leader, lambda seat: seat not in {None, leader}, what="another leader")
            ticks = self.facts.ticked()
            eventually(self.facts.ticked, lambda now: now > ticks + 1, what="ticks of another leader")
        self.faults["stop leader"] += 1

    def _leader(self) -> Seat | None:
        holder = self.facts.leader()
        for seat in self.seats["scheduler"]:
            if any(line["holder"] == holder for line in seat.program.lines("cron_leading")):
                return seat
        return None

    def stop(self, role: str) -> None:
        """One of them stands still for longer than any lease; the others go on all the while."""
        self.wait_for(role)
        victim = self._draw.choice(self.seats[role])
        with self._standing_still([victim.program.pid]):
            ended = self.facts.ended()
            pause(1.25 * LEASE_MS / 1_000)
            eventually(self.facts.ended, lambda now: now > ended, what=f"ends beside a stopped {role}")
        self.faults[f"stop {role}"] += 1

    def silence_database(self, outage_s: float, is_noticed: Callable[[], bool]) -> None:
        """Connections stay open, and nobody answers."""
        with self._standing_still(_family(self.server.pid)):
            pause(outage_s)
            eventually(is_noticed, what="clients that are told so")
        self.faults["silence"] += 1

    def hide_database(self, outage_s: float, is_noticed: Callable[[], bool]) -> None:
        """Every connection is cut, and there is nowhere to connect to."""
        eventually(self.facts.is_there, what="a connection that the others are cut through")
        here, hidden = self.server.socket, self.server.socket.with_suffix(".hidden")
        here.rename(hidden)
        try:
            self.facts.cut_others()
            pause(outage_s)
            eventually(is_noticed, what="clients that are told so")
        finally:
            hidden.rename(here)
        self.faults["away"] += 1

    @contextlib.contextmanager
    def _standing_still(self, pids: list[int]) -> Iterator[None]:
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                _signal(pid, signal.SIGCONT)


def held_port() -> socket.socket:
    """A port that nobody takes for free while whoever has it is away, and that it can have nevertheless."""
    while True:
        held = socket.socket()
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind(("127.0.0.1", stable_port()))
        except OSError:
            held.close()
        else:
            return held


def _family(pid: int) -> list[int]:
    """A process and its children; it is stopped first, so that there are no more of them."""
    _signal(pid, signal.SIGSTOP)
    return [pid, *(int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
