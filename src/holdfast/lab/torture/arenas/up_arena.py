"""Topologies that `holdfast up` supervises: it replaces whoever is killed, and the arena looks on.

`up` itself is no seat: who keeps the others has nobody who keeps it, and all of them end with it by their lifelines, so
that killing it says nothing of them but what killing them says.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.lab.compare.process_tree import argv
from holdfast.lab.history.records import Record
from holdfast.lab.torture.arenas.archive import Archives
from holdfast.lab.torture.arenas.company import Company
from holdfast.lab.torture.arenas.grounds import Grounds
from holdfast.lab.torture.arenas.kept_program import KeptProgram
from holdfast.lab.torture.arenas.options import LOGGING, UNLIMITED, options_of
from holdfast.lab.torture.arenas.places import Ports, port_of
from holdfast.lab.torture.arenas.roads import Roads
from holdfast.lab.torture.ports import Clockwork, Disk, Engine, Process, Proxy

#: Role and name, of the words after `holdfast`; None for whoever has no seat.
SeatOf = Callable[[list[str]], tuple[str, str] | None]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is special about one topology."""

    topology: str
    keeps: frozenset[str]
    has_schedules: bool
    arguments: Sequence[str]
    #: How many ports in a row it takes, and behind how many of them clients find gRPC.
    ports: int
    doors: int
    seats: Sequence[tuple[str, str]]
    seat_of: SeatOf
    #: What the data and the archives say, once nobody changes them any more.
    read: Callable[[Path, Archives], list[Record]]
    #: Folders of journals in the data, whose closed segments are archived.
    journals: Sequence[str]
    #: Whether it has so much room reserved that no full disk is felt while a fault lasts.
    is_thrifty: bool = False
    results_apart: bool = False


class Seat:
    """A process that `up` keeps. Implements the port `Process`."""

    def __init__(self, arena: "UpArena", role: str, name: str) -> None:
        self.role = role
        self.name = name
        self._arena = arena

    def pid(self) -> int:
        """The process; 0 while there is none."""
        return self._arena.seated().get((self.role, self.name), 0)

    def is_ready(self) -> bool:
        """Whether `up` has heard of it that it works."""
        pid = self.pid()
        return pid != 0 and pid in self._arena.ready()


class UpArena:
    """Implements the port `Arena`."""

    def __init__(self, folder: Path, app: str, plan: Plan) -> None:
        self._plan = plan
        self.topology, self.keeps, self.has_schedules = plan.topology, plan.keeps, plan.has_schedules
        self.results_apart = plan.results_apart
        self._grounds = Grounds(folder, app, has_small_disk=not plan.is_thrifty)
        self.folder = self._grounds.folder
        self._ports = Ports(plan.ports + plan.doors + 2)
        served, roads = self._ports.addresses[: plan.ports + 1], self._ports.addresses[plan.ports + 1 :]
        self._doors = [*served[: plan.doors], served[-1]]
        self._roads = Roads(roads)
        self.grpc, self.http = ",".join(self._roads.places[:-1]), self._roads.places[-1]
        self.proxies: Mapping[str, Proxy] = {"clients": self._roads}
        self.engines: Sequence[Engine] = ()
        self.clock: Clockwork | None = self._grounds.clock
        self.disk: Disk | None = self._grounds.disk
        arguments = [
            *("up", "--topology", plan.topology, "--data", str(self._grounds.data), "--app", app),
            *("--port", port_of(served[0]), "--http-port", port_of(served[-1])),
            *plan.arguments,
            *options_of(UNLIMITED, LOGGING),
        ]
        self._up: KeptProgram = self._grounds.program("supervisor", "up", arguments)
        self._company = Company(self._grounds.deaths, [self._up])
        self._seats: list[Process] = [Seat(self, role, name) for role, name in plan.seats]
        self._archives = Archives(self._grounds.archive)

    async def start(self) -> None:
        """Returns once jobs can be submitted and are run."""
        await self._roads.open(self._doors)
        await self._company.start()
        self._archives.open({name: self._grounds.data / name for name in self._plan.journals})
        assert self.seated().keys() == set(self._plan.seats), "every seat is taken, and there is no other"

    def processes(self) -> list[Process]:
        """All that `up` keeps."""
        return self._seats

    def seated(self) -> dict[tuple[str, str], int]:
        """Who has which seat now."""
        found = {}
        for pid in _children(self._up.pid()):
            words = argv(pid)
            seat = self._plan.seat_of(words[words.index("holdfast") + 1 :]) if "holdfast" in words else None
            if seat is not None:
                found[seat] = pid
        return found

    def ready(self) -> set[int]:
        """All processes that were ever ready."""
        return {line["pid"] for line in self._company.log(self._up).of("role_ready")}

    def expect(self, pid: int) -> None:
        """A fault is about to kill this process."""
        self._grounds.deaths.expect(pid)

    def no_room(self) -> int:
        """How often somebody was refused something because the disk was full."""
        return self._company.no_room()

    def strange(self) -> list[str]:
        """What went wrong that no fault explains."""
        dead = self._company.log(self._up).of("role_died")
        alone = [line for line in dead if not self._grounds.deaths.is_expected(line["pid"])]
        return [*self._company.strange(), *(f"{line['role']} ended by itself with {line['status']}" for line in alone)]

    async def stop(self) -> None:
        """In good order; what is on the small disk is kept."""
        async with AsyncExitStack() as ends:  # each, whatever becomes of the others
            ends.callback(self._grounds.close)
            ends.callback(self._ports.close)
            ends.push_async_callback(self._roads.close)
            ends.push_async_callback(self._archives.close)
            await self._company.stop()

    def facts(self) -> list[Record]:
        """What the data says."""
        return self._plan.read(self._grounds.data, self._archives)

    def trimmed(self) -> int:
        """How many segments of journals were removed by their owners."""
        return self._archives.trimmed()


def _children(pid: int) -> list[int]:
    """Of a process, whichever of its threads has made them; none if it is gone."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, path.read_text().split())
    return found
