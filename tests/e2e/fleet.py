"""Real processes of the program, each of which ends with the test that started it."""

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

from tests.e2e.waiting import eventually
from tests.e2e.wire import Wire

HOLDFAST = (sys.executable, "-m", "holdfast")
#: How many processes of one test run have ports of their own.
_SHARES = 4
_given: set[int] = set()


class Process(Protocol):
    """What a fleet does with a process, as `subprocess` has it."""

    @property
    def pid(self) -> int:
        """Its number."""

    @property
    def returncode(self) -> int | Any:  # noqa: ANN401 - as it is there
        """Its exit status, once it was asked for and is known."""

    def poll(self) -> int | None:
        """Its exit status, if it has ended."""

    def send_signal(self, sig: int) -> None:
        """Sends a signal, unless it has ended."""

    def kill(self) -> None:
        """Ends it, unless it has ended."""

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, once it has ended."""


class Program:
    """One process; what it prints and logs goes into files."""

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
        """All that it wrote to standard error."""
        return self._log.read_text() if self._log.exists() else ""

    def lines(self, event: str = "") -> list[dict[str, Any]]:
        """The complete JSON lines of the log, of one event or of all."""
        whole = self.log.split("\n")[:-1]
        records = [json.loads(line) for line in whole if line.startswith("{")]
        return [record for record in records if not event or record["event"] == event]

    def ready(self) -> dict[str, Any]:
        """Waits for the line that says so, and returns it."""
        line = eventually(self._ready_line, what="the ready line")
        assert isinstance(line, dict), f"it ended with {line}: {self.log}"
        return line

    def _ready_line(self) -> dict[str, Any] | str:
        has_ended = self._popen.poll() is not None  # looked at first: it may get ready and end at once
        for line in self.output.split("\n")[:-1]:  # the last one may be half of a line
            record: dict[str, Any] = json.loads(line)
            if record.get("event") == "ready":
                return record
        return f"exit status {self._popen.returncode}" if has_ended else ""

    def wait_or_ready(self) -> bool:
        """Whether it got ready; False if it ended instead."""
        return isinstance(eventually(self._ready_line), dict)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to this process alone."""
        self._popen.send_signal(number)

    def wait(self) -> int:
        """The exit status, once it has ended."""
        eventually(lambda: self._popen.poll() is not None, what=f"the end of process {self.pid}")
        return self._popen.returncode

    def stop(self) -> int:
        """TERM, and the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """Ends it as a power cut would, even while it is stopped."""
        with contextlib.suppress(ProcessLookupError):
            self._popen.kill()
        self._popen.wait()

    def is_running(self) -> bool:
        return self._popen.poll() is None

    def children(self) -> list[int]:
        """The pids of its direct children; of one that has ended none, for its own pid may be another's by now."""
        found: list[int] = []
        if self.is_running():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ends while it is looked at
                for thread in Path(f"/proc/{self.pid}/task").iterdir():
                    found += _children_of(thread)
        return found


class Fleet:
    """Starts processes in one folder and sees to it that none is left."""

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
        """Takes care of a process that a test has started in its own way."""
        return self._kept(Program(popen, self.folder / "adopted.out", self.folder / "adopted.log"))

    def _kept(self, program: Program) -> Program:
        self.programs.append(program)
        return program

    def server(self, *arguments: str, data: str = "data", port: int = 0, **environment: str) -> tuple[Program, Wire]:
        """A server without a worker that is ready, and a client of it."""
        return self._ready(self.start("server", "--data", data, "--port", str(port), *arguments, **environment))

    def up(self, *arguments: str, data: str = "data", port: int = 0) -> tuple[Program, Wire]:
        """A server with a worker that is ready, and a client of it."""
        return self._ready(self.start("up", "--data", data, "--port", str(port), *arguments))

    def worker(self, target: str, *arguments: str) -> Program:
        """A worker that is ready."""
        program = self.start("worker", "--connect", target, *arguments)
        program.ready()
        return program

    def wire(self, target: str) -> Wire:
        """Another client, on a connection of its own."""
        return self.keep(Wire(target))

    def keep(self, wire: Wire) -> Wire:
        """Closes a client with the processes."""
        self._wires.append(wire)
        return wire

    def _ready(self, program: Program) -> tuple[Program, Wire]:
        return program, self.wire(program.ready()["grpc"])

    def end(self) -> None:
        """Closes every client and kills every process, by its own pid."""
        for wire in self._wires:
            wire.close()
        for program in self.programs:
            children = program.children()
            program.kill()
            kill_all(children)


def _children_of(thread: Path) -> list[int]:
    """Those that one thread has started; none if it has ended since it was seen."""
    try:
        return [int(pid) for pid in (thread / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def kill_all(pids: list[int]) -> None:
    """Ends processes that may have ended by themselves."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def clean_environment(more: Mapping[str, str]) -> dict[str, str]:
    """The environment without settings of whoever runs the tests; HTTP takes any port that is free.

    No service is late for another: what stands still here is the machine, and it is waited for.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return {**kept, "HOLDFAST_HTTP_PORT": "0", "INTERNAL_TIMEOUT_MS": "30000", **more}


def stable_port() -> int:
    """A free port outside the range that outgoing connections take theirs from, so that it stays free.

    Nobody is given it again: not in this process, and not in another one of the same test run.
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
    """The ports of this process of the test run."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _SHARES
    width = (30_000 - 15_000) // _SHARES
    return range(15_000 + number * width, 15_000 + (number + 1) * width)


@contextlib.contextmanager
def fleet_in(folder: Path) -> Iterator[Fleet]:
    """A fleet for the length of a block."""
    fleet = Fleet(folder)
    try:
        yield fleet
    finally:
        fleet.end()
