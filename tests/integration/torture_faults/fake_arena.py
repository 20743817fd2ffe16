"""An arena of real processes without work, in which the effects of faults are visible."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast_lab.history.records import Record
from holdfast_lab.torture.faults.clock_file import FileClock
from holdfast_lab.torture.faults.disks import SmallDisk
from holdfast_lab.torture.ports import ArenaClock, ArenaProcess, Disk, Engine, NetworkNamespace, Proxy

SLEEPING = ("sleep", "1000")
#: Writes a journal in an endless loop: a line and a sync.
SYNCING = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
while True:
    os.write(file, b"line")
    os.fdatasync(file)
    time.sleep(0.005)
"""


class Seat:
    """Keeps one process running and replaces it when it ends."""

    def __init__(self, role: str, name: str, command: tuple[str, ...] = SLEEPING) -> None:
        self.role = role
        self.name = name
        self.pids: list[int] = []
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._task = asyncio.create_task(self._keep())

    def pid(self) -> int:
        process = self._process
        return process.pid if process is not None and process.returncode is None else 0

    def is_ready(self) -> bool:
        return self.pid() != 0

    async def _keep(self) -> None:
        try:
            while True:
                self._process = await asyncio.create_subprocess_exec(*self._command)
                self.pids.append(self._process.pid)
                await self._process.wait()
        finally:
            if self.pid():
                assert self._process is not None
                self._process.kill()
                await self._process.wait()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class FakeEngine:
    """One process that can crash, and be hidden."""

    name = "engine"

    def __init__(self, command: tuple[str, ...] = SLEEPING) -> None:
        self.crashes = 0
        self.is_hidden = False
        self._command = command
        self._start()

    def _start(self) -> None:
        self.process = subprocess.Popen(self._command)

    def pids(self) -> list[int]:
        return [self.process.pid]

    @asynccontextmanager
    async def hidden(self) -> AsyncIterator[None]:
        self.is_hidden = True
        yield
        self.is_hidden = False

    async def crash(self) -> None:
        self.crashes += 1
        self.close()
        self._start()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class BareArena:
    """An arena of processes only; implements the port `Arena`."""

    topology = "fake"
    keeps = frozenset[str]()
    results_apart = False
    has_schedules = False
    grpc = ""
    http = ""

    def __init__(self, folder: Path, seats: list[Seat]) -> None:
        self.folder = folder
        self.seats = seats
        self.proxies: Mapping[str, Proxy] = {}
        self.engines: Sequence[Engine] = []
        self.clock: ArenaClock | None = None
        self.disk: Disk | None = None
        self.expected: list[int] = []

    async def start(self) -> None:
        """Does nothing; the processes already run."""

    def processes(self) -> list[ArenaProcess]:
        return list(self.seats)

    def expect(self, pid: int) -> None:
        self.expected.append(pid)

    def no_room(self) -> int:
        return 0

    def strange(self) -> list[str]:
        return []

    async def stop(self) -> None:
        for seat in self.seats:
            await seat.close()

    def trimmed(self) -> int:
        return 0

    def facts(self) -> list[Record]:
        return []


class SteppedClock:
    """A clock that records its steps."""

    def __init__(self, path: Path) -> None:
        self._clock = FileClock(path)
        self.steps: list[int] = []

    def step(self, ms: int) -> None:
        self.steps.append(ms)
        self._clock.step(ms)

    @property
    def offset_ms(self) -> int:
        return self._clock.offset_ms


class NotedIsland:
    """A network that records its cuts."""

    def __init__(self) -> None:
        self.cuts: list[tuple[bool, bool]] = []
        #: Whether packets are sent through it.
        self.is_used = True
        self._sent = 0

    def cut(self, *, towards_server: bool, towards_client: bool) -> None:
        self.cuts.append((towards_server, towards_client))

    def mend(self) -> None:
        self.cuts.append((False, False))

    def sent(self, *, towards_server: bool) -> int:
        assert towards_server in {True, False}
        self._sent += self.is_used
        return self._sent


class FullArena(BareArena):
    """An arena with a target for every fault."""

    def __init__(self, folder: Path, seats: list[Seat]) -> None:
        super().__init__(folder, seats)
        self.islands: dict[str, NetworkNamespace] = {"w-1": NotedIsland()}
        self._refused = 0

    def no_room(self) -> int:
        self._refused += isinstance(self.disk, SmallDisk) and self.disk.free_bytes() == 0
        return self._refused


def syncing(folder: Path) -> tuple[str, ...]:
    """The command of a process that writes a journal in the folder."""
    return (sys.executable, "-c", SYNCING, str(folder / "journal"))


@asynccontextmanager
async def seated(folder: Path, *roles: str) -> AsyncIterator[BareArena]:
    """An arena with a process of each role, in that order."""
    arena = BareArena(folder, [Seat(role, f"{role}-{number}") for number, role in enumerate(roles)])
    try:
        yield arena
    finally:
        await arena.stop()
