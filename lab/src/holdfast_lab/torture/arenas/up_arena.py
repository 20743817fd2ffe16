"""Topologies that `holdfast up` supervises: `up` replaces killed processes, and the arena only observes them.

If processes of the topology take workers from elsewhere, the arena starts one, which reaches them through proxies.

`up` itself is not a target of faults: no process would replace it, and all its children end with it. So killing it
would test no more than killing them does.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from holdfast_lab.history.records import Record
from holdfast_lab.measure.process_tree import argv
from holdfast_lab.measure.reserved_ports import HOST, Ports, port_of
from holdfast_lab.torture.arenas.archive import Archives
from holdfast_lab.torture.arenas.arena_folder import ArenaFolder
from holdfast_lab.torture.arenas.client_proxies import ClientProxies
from holdfast_lab.torture.arenas.options import LOGGING, UNLIMITED, WORKER, options_of
from holdfast_lab.torture.arenas.programs import ArenaPrograms
from holdfast_lab.torture.arenas.restarted_program import RestartedProgram
from holdfast_lab.torture.faults.listening_ports import listening_ports
from holdfast_lab.torture.jobs import NODES
from holdfast_lab.torture.ports import ArenaClock, ArenaProcess, Disk, Engine, Proxy

#: Maps the words after `holdfast` to a role and a name; None for other processes.
SeatOf = Callable[[list[str]], tuple[str, str] | None]


@dataclass(frozen=True, kw_only=True)
class ArenaPlan:
    """The properties of one topology."""

    topology: str
    keeps: frozenset[str]
    has_schedules: bool
    arguments: Sequence[str]
    #: The number of consecutive ports, and how many of them serve gRPC to clients.
    ports: int
    doors: int
    seats: Sequence[tuple[str, str]]
    seat_of: SeatOf
    #: Reads facts from the data and the archives, after all processes have ended.
    read: Callable[[Path, Archives], list[Record]]
    #: Folders of journals in the data, whose closed segments are archived.
    journals: Sequence[str]
    #: Whether the reserved disk space outlasts a full-disk fault, so that the fault would have no effect.
    is_thrifty: bool = False
    #: The names of the processes that a worker connects to, in the order of their gRPC ports.
    employers: Sequence[str] = ()
    results_apart: bool = False


class UpProcess:
    """A process that `up` supervises; implements the port `ArenaProcess`."""

    def __init__(self, arena: "UpArena", role: str, name: str) -> None:
        self.role = role
        self.name = name
        self._arena = arena

    def pid(self) -> int:
        """Returns the pid of the process, or 0 while there is none."""
        return self._arena.seated().get((self.role, self.name), 0)

    def is_ready(self) -> bool:
        """Whether `up` has logged that this process is ready."""
        pid = self.pid()
        return pid != 0 and pid in self._arena.ready()


class UpArena:
    """Implements the port `Arena`."""

    def __init__(self, folder: Path, app: str, plan: ArenaPlan) -> None:
        self._plan = plan
        self.topology, self.keeps, self.has_schedules = plan.topology, plan.keeps, plan.has_schedules
        self.results_apart = plan.results_apart
        self._arena_folder = ArenaFolder(folder, app, has_small_disk=not plan.is_thrifty)
        self.folder = self._arena_folder.folder
        self._ports = Ports(plan.ports + plan.doors + 2 + len(plan.employers))
        served, proxies = self._ports.addresses[: plan.ports + 1], self._ports.addresses[plan.ports + 1 :]
        roads = [proxies.pop() for _ in plan.employers]
        self._doors = [*served[: plan.doors], served[-1]]
        self._proxies = ClientProxies(proxies)
        self.grpc, self.http = ",".join(self._proxies.places[:-1]), self._proxies.places[-1]
        self.proxies: Mapping[str, Proxy] = {"clients": self._proxies}
        self._employees = ClientProxies(roads)
        if roads:
            self.proxies = {**self.proxies, "workers": self._employees}
        self.engines: Sequence[Engine] = ()
        self.clock: ArenaClock | None = self._arena_folder.clock
        self.disk: Disk | None = self._arena_folder.disk
        arguments = [
            *("up", "--topology", plan.topology, "--data", str(self._arena_folder.data), "--app", app),
            *("--port", port_of(served[0]), "--http-port", port_of(served[-1])),
            *plan.arguments,
            *options_of(UNLIMITED, LOGGING),
        ]
        self._up: RestartedProgram = self._arena_folder.program("supervisor", "up", arguments)
        self._workers = [self._worker(roads)] if roads else []
        self._programs = ArenaPrograms(self._arena_folder.expected_exits, [self._up], self._workers)
        self._seats: list[ArenaProcess] = [UpProcess(self, role, name) for role, name in plan.seats]
        self._archives = Archives(self._arena_folder.archive)

    async def start(self) -> None:
        """Returns once jobs can be submitted and are run."""
        await self._proxies.open(self._doors)
        await self._employees.open_to(
            [partial(self._wire_of, name, door) for name, door in zip(self._plan.employers, self._doors, strict=False)]
        )
        await self._programs.start()
        self._archives.open({name: self._arena_folder.data / name for name in self._plan.journals})
        assert self.seated().keys() == set(self._plan.seats), "the children of `up` are not the expected ones"

    def _worker(self, roads: Sequence[str]) -> RestartedProgram:
        arguments = ["worker", "-A", self._arena_folder.app, "--connect", ",".join(roads)]
        program = self._arena_folder.program("worker", "worker", [*arguments, *options_of(WORKER, LOGGING)])
        program.tell(**{NODES: str(len(roads))})
        return program

    def _wire_of(self, name: str, door: str) -> tuple[str, int]:
        """Returns the port for workers: the one beside that of gRPC, and another one after each start."""
        pids = [pid for (_, seat), pid in self.seated().items() if seat == name]
        ports = [port for pid in pids for port in listening_ports(pid) if port != int(port_of(door))]
        if not ports:
            raise ConnectionRefusedError(f"{name} does not listen")
        return HOST, ports[0]

    def processes(self) -> list[ArenaProcess]:
        """Returns all processes that `up` supervises, and the workers of the arena."""
        return [*self._seats, *self._workers]

    def seated(self) -> dict[tuple[str, str], int]:
        """Returns the current pid of each role and name."""
        found = {}
        for pid in _children(self._up.pid()):
            words = argv(pid)
            seat = self._plan.seat_of(words[words.index("holdfast") + 1 :]) if "holdfast" in words else None
            if seat is not None:
                found[seat] = pid
        return found

    def ready(self) -> set[int]:
        """Returns the pids of all processes that were ever ready."""
        return {line["pid"] for line in self._programs.log(self._up).of("role_ready")}

    def expect(self, pid: int) -> None:
        """Registers a process that a fault is about to kill."""
        self._arena_folder.expected_exits.expect(pid)

    def no_room(self) -> int:
        """Returns how many requests were refused because the disk was full."""
        return self._programs.no_room()

    def strange(self) -> list[str]:
        """Returns problems that no fault explains."""
        dead = self._programs.log(self._up).of("role_died")
        alone = [line for line in dead if not self._arena_folder.expected_exits.is_expected(line["pid"])]
        return [*self._programs.strange(), *(f"{line['role']} ended by itself with {line['status']}" for line in alone)]

    async def stop(self) -> None:
        """Stops all processes; keeps the data of the small disk."""
        async with AsyncExitStack() as ends:  # run every step, even if others fail
            ends.callback(self._arena_folder.close)
            ends.callback(self._ports.close)
            ends.push_async_callback(self._employees.close)
            ends.push_async_callback(self._proxies.close)
            ends.push_async_callback(self._archives.close)
            await self._programs.stop()

    def facts(self) -> list[Record]:
        """Reads the facts from the data."""
        return self._plan.read(self._arena_folder.data, self._archives)

    def trimmed(self) -> int:
        """Returns how many journal segments were removed by their owners."""
        return self._archives.trimmed()


def _children(pid: int) -> list[int]:
    """Returns the children of all threads of a process; empty if it is gone."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, path.read_text().split())
    return found
