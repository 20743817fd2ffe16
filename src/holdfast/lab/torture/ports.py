"""What the parts of a torture know of each other.

An *arena* is one topology as real processes in a folder of its own. A *fault* breaks something of an arena and mends it
again. The *load* asks, all the while, through the addresses that the arena gives. None of them knows another's inside.
"""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from holdfast.lab.history.records import Record


class Process(Protocol):
    """A seat in an arena, and whoever has it now: after a kill, somebody else does."""

    role: str
    #: Its own in the arena.
    name: str

    def pid(self) -> int:
        """The process; 0 while there is none."""
        ...

    def is_ready(self) -> bool:
        """Whether whoever has it now has said that it works."""
        ...


class Engine(Protocol):
    """What a topology stands on, that is not ours: a PostgreSQL, a server of a ZooKeeper ensemble."""

    name: str

    def pids(self) -> list[int]:
        """Its processes; empty while it is down."""
        ...

    async def crash(self) -> None:
        """Ends it as a power cut would, and brings it back; returns once it answers again."""
        ...


class Harm(msgspec.Struct):
    """What a road has done to those who use it, all in all: a fault that has done none was not fired."""

    late_bytes: int = 0
    swallowed_bytes: int = 0
    doubled_bytes: int = 0
    #: Connections that were reset when an answer came, and those that were reset at any other moment.
    unanswered: int = 0
    cut: int = 0


class Proxy(Protocol):
    """A road that can be made bad: whoever uses it connects to `address` and reaches the other end."""

    address: str

    def delay(self, seconds: float) -> None:
        """Every byte takes so much longer, both ways; 0 mends it."""
        ...

    def cut_after_send(self, *, is_on: bool) -> None:
        """What is said arrives, and the connection is reset before any answer comes back."""
        ...

    def duplicate(self, *, is_on: bool) -> None:
        """New connections reach the other end twice: all that is said on them is said again on another connection."""
        ...

    def swallow(self, *, towards_server: bool, towards_client: bool) -> None:
        """Bytes of a direction vanish while the connection stays open; both False mends it for new connections."""
        ...

    def cut(self) -> None:
        """Resets every connection there is."""
        ...

    def harm(self) -> Harm:
        """What has been done so far."""
        ...


class Clockwork(Protocol):
    """The wall clock of an arena's processes, as far as they are told it."""

    def step(self, ms: int) -> None:
        """So far ahead (or back) of the true time from now on; 0 is true."""
        ...


class Disk(Protocol):
    """Where an arena's data is."""

    #: Why it cannot be filled up, if it cannot; else empty.
    no_filling: str

    def fill(self) -> None:
        """No room is left."""
        ...

    def free(self) -> None:
        """There is room again."""
        ...


class Island(Protocol):
    """A network of its own, in which a process of an arena lives."""

    def cut(self, *, towards_server: bool, towards_client: bool) -> None:
        """Packets of a direction vanish, and connections do not hear of it; a direction not named is whole again."""
        ...

    def mend(self) -> None:
        """Both directions are whole; connections go on where they were."""
        ...

    def sent(self, *, towards_server: bool) -> int:
        """Packets that were sent in a direction so far, whether they arrived or not."""
        ...


@runtime_checkable
class WithIslands(Protocol):
    """An arena some of whose processes live on islands."""

    #: By the name of the process.
    islands: Mapping[str, Island]


class Arena(Protocol):
    """One topology. `start`, then `stop`, then `facts`; nobody is left after `stop`, however it went."""

    topology: str
    folder: Path
    #: What its store can be asked for afterwards: grants, order, ticks.
    keeps: frozenset[str]
    #: Whether a job whose result is there already may be handed out once more, because its state is another owner's.
    results_apart: bool
    has_schedules: bool
    #: Where clients go, through the proxy of that name: `host:port`.
    grpc: str
    http: str
    #: By who uses them: clients, and workers where they can be led through one.
    proxies: Mapping[str, Proxy]
    engines: Sequence[Engine]
    clock: Clockwork | None
    disk: Disk | None

    async def start(self) -> None:
        """Returns once jobs can be submitted and are run by the jobs of `holdfast.lab.torture.jobs`."""
        ...

    def processes(self) -> list[Process]:
        """Every seat of ours. Whoever is killed is replaced without anybody's help."""
        ...

    def expect(self, pid: int) -> None:
        """Somebody is about to kill that process: its end is no surprise."""
        ...

    def no_room(self) -> int:
        """How often somebody was refused something so far because no room was left on the disk."""
        ...

    def strange(self) -> list[str]:
        """What went wrong that no fault explains: bugs that were logged, processes that ended by themselves."""
        ...

    async def stop(self) -> None:
        """In good order: TERM, and a status of 0 from whoever was not being broken."""
        ...

    def trimmed(self) -> int:
        """How many files of journals were removed so far because their history was over."""
        ...

    def facts(self) -> list[Record]:
        """What the store says, once everybody has ended. Damage that it shows is among it."""
        ...


class Fault(Protocol):
    """One way to break something."""

    #: Its name, as in `--faults`.
    kind: str

    def lacking(self, arena: Arena) -> str:
        """Why it cannot be fired in this arena, or on this machine; empty if it can."""
        ...

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Breaks something, waits, mends it again, and says whom it hit; raises `NotNowError` if nobody was there."""
        ...


class NotNowError(Exception):
    """The fault found nothing to break just now: it was not fired, and may be tried again."""
