"""Real processes of the program; the fleet ends them after the test that started them."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from tests.e2e.grpc_client import Wire
from tests.e2e.wait_until import eventually

HOLDFAST = (sys.executable, "-m", "holdfast")
#: Number of pytest-xdist workers with separate port ranges.
_SHARES = 4
_given: set[int] = set()


class Process(Protocol):
    """The methods of `subprocess.Popen` that a fleet uses."""

    @property
    def pid(self) -> int:
        """The process id."""

    @property
    def returncode(self) -> int | Any:  # noqa: ANN401 - as in `subprocess.Popen`
        """The exit status, once `poll` or `wait` has seen the end."""

    def poll(self) -> int | None:
        """Returns the exit status, or None while the process runs."""

    def send_signal(self, sig: int) -> None:
        """Sends a signal, unless the process has ended."""

    def kill(self) -> None:
        """Sends SIGKILL, unless the process has ended."""

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end of the process and returns its exit status."""


class Program:
    """One process whose standard output and standard error go to files."""

    def __init__(self, popen: Process, out: Path, log: Path) -> None:
        self._popen = popen
        self._out = out
        self._log = log

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def output(self) -> str:
        return self._out.read_text()

    @property
    def log(self) -> str:
        """The complete standard error of the process."""
        return self._log.read_text() if self._log.exists() else ""

    def lines(self, event: str = "") -> list[dict[str, Any]]:
        """Returns the complete JSON lines of the log, filtered by event if one is given."""
        whole = self.log.split("\n")[:-1]
        records = [json.loads(line) for line in whole if line.startswith("{")]
        return [record for record in records if not event or record["event"] == event]

    def ready(self) -> dict[str, Any]:
        """Waits for the ready line and returns it."""
        line = eventually(self._ready_line, what="the ready line")
        assert isinstance(line, dict), f"process ended before its ready line, with {line}: {self.log}"
        return line

    def _ready_line(self) -> dict[str, Any] | str:
        has_ended = self._popen.poll() is not None  # polled first: it may exit right after its ready line
        for line in self.output.split("\n")[:-1]:  # the last line may be incomplete
            record: dict[str, Any] = json.loads(line)
            if record.get("event") == "ready":
                return record
        return f"exit status {self._popen.returncode}" if has_ended else ""

    def wait_or_ready(self) -> bool:
        """Waits for the ready line or the end of the process; returns whether the process became ready."""
        return isinstance(eventually(self._ready_line), dict)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to this process alone."""
        self._popen.send_signal(number)

    def wait(self) -> int:
        """Waits for the end of the process and returns its exit status."""
        eventually(lambda: self._popen.poll() is not None, what=f"the end of process {self.pid}")
        return self._popen.returncode

    def stop(self) -> int:
        """Sends SIGTERM and returns the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """Sends SIGKILL, which also ends a stopped process."""
        with contextlib.suppress(ProcessLookupError):
            self._popen.kill()
        self._popen.wait()

    def is_running(self) -> bool:
        return self._popen.poll() is None

    def children(self) -> list[int]:
        """Returns the pids of the direct children; none after its end, when its pid may have been reused."""
        found: list[int] = []
        if self.is_running():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the process may end during the read
                for thread in Path(f"/proc/{self.pid}/task").iterdir():
                    found += _children_of(thread)
        return found


class Fleet:
    """Starts processes in one folder and kills all of them at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs: list[Program] = []
        self._wires: list[Wire] = []

    def start(self, *arguments: str, **environment: str) -> Program:
        """Runs `holdfast` with these arguments."""
        number = len(self.programs)
        out, log = self.folder / f"{number}.out", self.folder / f"{number}.log"
        with out.open("wb") as out_file, log.open("wb") as log_file:
            popen = self._launch(arguments, environment, out_file, log_file)
        return self._kept(Program(popen, out, log))

    def _launch(
        self, arguments: tuple[str, ...], environment: Mapping[str, str], out: BinaryIO, log: BinaryIO
    ) -> Process:
        return subprocess.Popen(
            [*HOLDFAST, *arguments],
            cwd=self.folder,
            env=clean_environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
        )

    def adopt(self, popen: Process) -> Program:
        """Adds a process that the test has started itself, so that the fleet ends it."""
        return self._kept(Program(popen, self.folder / "adopted.out", self.folder / "adopted.log"))

    def _kept(self, program: Program) -> Program:
        self.programs.append(program)
        return program

    def server(self, *arguments: str, data: str = "data", port: int = 0, **environment: str) -> tuple[Program, Wire]:
        """Starts a server without a worker, waits until it is ready, and connects a client."""
        return self._ready(self.start("server", "--data", data, "--port", str(port), *arguments, **environment))

    def up(self, *arguments: str, data: str = "data", port: int = 0) -> tuple[Program, Wire]:
        """Starts a server with a worker, waits until it is ready, and connects a client."""
        return self._ready(self.start("up", "--data", data, "--port", str(port), *arguments))

    def worker(self, target: str, *arguments: str) -> Program:
        """Starts a worker and waits until it is ready."""
        program = self.start("worker", "--connect", target, *arguments)
        program.ready()
        return program

    def wire(self, target: str) -> Wire:
        """Returns a new client with its own connection."""
        return self.keep(Wire(target))

    def keep(self, wire: Wire) -> Wire:
        """Registers a client that the fleet closes at its end."""
        self._wires.append(wire)
        return wire

    def _ready(self, program: Program) -> tuple[Program, Wire]:
        return program, self.wire(program.ready()["grpc"])

    def end(self) -> None:
        """Closes every client and kills every process and its children by pid."""
        for wire in self._wires:
            wire.close()
        for program in self.programs:
            children = program.children()
            program.kill()
            kill_all(children)


def _children_of(thread: Path) -> list[int]:
    """Returns the child pids of one thread; none if the thread has ended."""
    try:
        return [int(pid) for pid in (thread / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def kill_all(pids: list[int]) -> None:
    """Kills processes; ignores those that have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def clean_environment(more: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment without the HOLDFAST_ settings of the caller, with any free port for HTTP.

    The internal timeout is long, because a slow machine must not make services give up on each other.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return {**kept, "HOLDFAST_HTTP_PORT": "0", "INTERNAL_TIMEOUT_MS": "30000", **more}


def stable_port() -> int:
    """Returns a free port outside the ephemeral range, so that no outgoing connection takes it.

    No other call in this process, and no other pytest-xdist worker of the test run, returns the same port.
    """
    draw, ours = random.Random(), _share()
    while True:
        port = draw.choice(ours)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port


def _share() -> range:
    """Returns the port range of this pytest-xdist worker."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _SHARES
    width = (30_000 - 15_000) // _SHARES
    return range(15_000 + number * width, 15_000 + (number + 1) * width)


@contextlib.contextmanager
def fleet_in(folder: Path) -> Iterator[Fleet]:
    """Yields a fleet and ends its processes on exit."""
    fleet = Fleet(folder)
    try:
        yield fleet
    finally:
        fleet.end()
