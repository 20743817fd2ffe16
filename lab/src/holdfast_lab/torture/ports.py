"""The interfaces between the parts of a torture.

An *arena* is one topology as real processes in its own folder. A *fault* breaks a part of an arena and repairs it. The
*load* sends requests throughout the run, to the addresses of the arena. No part depends on the internals of another.
"""

import random
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from holdfast_lab.history.records import Record


class ArenaProcess(Protocol):
    """A process of an arena, together with its replacements after kills."""

    role: str
    #: Unique in the arena.
    name: str

    def pid(self) -> int:
        """Returns the current pid, or 0 while there is none."""
        ...

    def is_ready(self) -> bool:
        """Whether the current process has reported that it is ready."""
        ...


class Engine(Protocol):
    """A program of others that a topology needs: a PostgreSQL, or a server of a ZooKeeper ensemble."""

    name: str

    def pids(self) -> list[int]:
        """Returns its processes; empty while it is down."""
        ...

    async def crash(self) -> None:
        """Crashes it as by a power cut, and restarts it; returns once it answers again."""
        ...


@runtime_checkable
class Hideable(Protocol):
    """An engine that can be made unreachable while it runs."""

    name: str

    def hidden(self) -> AbstractAsyncContextManager[None]:
        """Cut all connections and refuse new ones until the block ends."""
        ...


class ProxyEffects(msgspec.Struct):
    """The total effects of a proxy on its traffic: a fault without effect does not count as fired."""

    late_bytes: int = 0
    swallowed_bytes: int = 0
    doubled_bytes: int = 0
    #: Connections that were reset when a response arrived, and those that were reset at other times.
    unanswered: int = 0
    cut: int = 0


class Proxy(Protocol):
    """A proxy whose connections can be disturbed: it forwards connections to `address`."""

    address: str

    def delay(self, seconds: float) -> None:
        """Delays every byte by this time, both ways; 0 ends the delay."""
        ...

    def cut_after_send(self, *, is_on: bool) -> None:
        """Delivers requests, and resets the connection before any response arrives."""
        ...

    def duplicate(self, *, is_on: bool) -> None:
        """Duplicates new connections: sends their bytes once more, over a second connection to the target."""
        ...

    def swallow(self, *, towards_server: bool, towards_client: bool) -> None:
        """Drops the bytes of a direction while connections stay open; both False ends it for new connections."""
        ...

    def cut(self) -> None:
        """Resets all open connections."""
        ...

    def effects(self) -> ProxyEffects:
        """The effects so far."""
        ...


class ArenaClock(Protocol):
    """The wall clock of an arena's processes."""

    def step(self, ms: int) -> None:
        """Sets the clock ahead of the true time (or back, if negative); 0 sets it right."""
        ...


class Disk(Protocol):
    """The disk with an arena's data."""

    #: The reason why it cannot be filled, or empty.
    no_filling: str

    def fill(self) -> None:
        """Leaves no free space."""
        ...

    def free(self) -> None:
        """Frees the space again."""
        ...


class NetworkNamespace(Protocol):
    """A network namespace of a process of an arena."""

    def cut(self, *, towards_server: bool, towards_client: bool) -> None:
        """Drops packets of the given directions, without resetting connections; restores the other directions."""
        ...

    def mend(self) -> None:
        """Restores both directions; connections continue."""
        ...

    def sent(self, *, towards_server: bool) -> int:
        """Returns the number of packets sent in a direction so far, whether they arrived or not."""
        ...


@runtime_checkable
class NamespacedArena(Protocol):
    """An arena with processes in network namespaces."""

    #: By the name of the process.
    islands: Mapping[str, NetworkNamespace]


class Arena(Protocol):
    """One topology: `start`, then `stop`, then `facts`; no process is left after `stop`, even if it fails."""

    topology: str
    folder: Path
    #: The kinds of data that its store keeps: grants, order, ticks.
    keeps: frozenset[str]
    #: Whether a job may be granted again although its result is stored, because another owner stores its state.
    results_apart: bool
    has_schedules: bool
    #: Addresses for clients, of their proxy: `host:port`.
    grpc: str
    http: str
    #: By their users: clients, and workers if they can connect through one.
    proxies: Mapping[str, Proxy]
    engines: Sequence[Engine]
    clock: ArenaClock | None
    disk: Disk | None

    async def start(self) -> None:
        """Starts all processes; returns once jobs can be submitted and are run by `holdfast_lab.torture.jobs`."""
        ...

    def processes(self) -> list[ArenaProcess]:
        """Returns every process of the product; killed ones are replaced automatically."""
        ...

    def expect(self, pid: int) -> None:
        """Registers a process that is about to be killed: its exit is not a finding."""
        ...

    def no_room(self) -> int:
        """Returns how many requests were refused so far because the disk was full."""
        ...

    def strange(self) -> list[str]:
        """Returns problems that no fault explains: logged bugs, and processes that ended by themselves."""
        ...

    async def stop(self) -> None:
        """Sends TERM; every process that no fault affects must exit with 0."""
        ...

    def trimmed(self) -> int:
        """Returns how many journal segments were removed so far because of their age."""
        ...

    def facts(self) -> list[Record]:
        """Reads the facts from the store, including damage, after all processes have ended."""
        ...


class Fault(Protocol):
    """One way to break something."""

    #: Its name, as in `--faults`.
    kind: str

    def lacking(self, arena: Arena) -> str:
        """Returns the reason why it cannot be fired in this arena or on this machine, or an empty string."""
        ...

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Breaks something, waits, repairs it, and returns the targets; raises `NotNowError` if there was no target."""
        ...


class NotNowError(Exception):
    """The fault had no target or no effect: it was not fired, and may be tried again."""


class UnrecoveredError(Exception):
    """The fault was fired and repaired, and the product did not recover from it, which is a finding."""
