"""Every fault fires in an arena with a target for it, and gives a reason in one without."""

import asyncio
import random
import resource
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from holdfast_lab.torture.faults import FAULTS, descriptor_exhaustion, network_faults, wait_until
from holdfast_lab.torture.faults.disks import SmallDisk
from holdfast_lab.torture.faults.kinds import fault_of
from holdfast_lab.torture.faults.proxy import TcpProxy
from holdfast_lab.torture.faults.targets import state
from holdfast_lab.torture.ports import NotNowError, UnrecoveredError
from scripts.engines import MOUNT, STRACE
from tests.engines import require
from tests.integration.torture_faults.fake_arena import (
    FakeEngine,
    FullArena,
    NotedIsland,
    Seat,
    SteppedClock,
    seated,
    syncing,
)
from tests.integration.torture_faults.proxy_peers import chatted_on, proxied, serving, until

KINDS = {
    *("kill", "kill-starting", "kill-many", "stop", "stop-short", "delay", "cut", "cut-after-send", "duplicate"),
    *("swallow-to-server", "swallow-to-client", "partition", "full-disk", "slow-disk", "clock", "engine-crash"),
    *("engine-stop", "engine-away", "resets", "full-disk-long", "clock-restart", "descriptors"),
}
ROADS = {"delay", "cut", "cut-after-send", "duplicate", "swallow-to-server", "swallow-to-client"}
#: Faults that need more than processes.
NEEDY = KINDS - {"kill", "kill-starting", "kill-many", "stop", "stop-short", "slow-disk"}
ENGINES = {"full-disk": MOUNT, "full-disk-long": MOUNT, "slow-disk": STRACE}
#: Faults that need a special arena and are tested below.
APART = {"resets", "descriptors"}
#: Faults that step the clock.
CLOCKS = {"clock", "clock-restart"}


class Seated:
    """A process that is started elsewhere."""

    role = name = "server"

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def pid(self) -> int:
        return self._pid

    def is_ready(self) -> bool:
        return True


class Hasty(random.Random):
    """Draws targets as usual, and short times."""

    def random(self) -> float:
        return super().random() / 10

    def getrandbits(self, k: int, /) -> int:
        return super().getrandbits(k)


@pytest.fixture
async def arena(tmp_path: Path) -> AsyncIterator[FullArena]:
    """Three seats and an engine, a proxy that is in use, an island, a clock and, where possible, a small disk."""
    (tmp_path / "engine").mkdir()
    engine = FakeEngine(syncing(tmp_path / "engine"))
    seats = [Seat("server", "s-1", syncing(tmp_path)), Seat("worker", "w-1"), Seat("worker", "w-2")]
    made = FullArena(tmp_path, seats)
    try:
        async with serving() as server, proxied(server.port) as proxy, chatted_on(server, proxy):
            with SmallDisk(tmp_path / "small", 1 << 20) as disk:
                made.proxies, made.engines, made.disk = {"clients": proxy}, [engine], disk
                made.clock = SteppedClock(tmp_path / "clock")
                (disk.path / "data").write_bytes(b"something")
                await until(lambda: all(seat.is_ready() for seat in seats) and (tmp_path / "journal").exists())
                yield made
    finally:
        await made.stop()
        engine.close()


def test_all_kinds_are_there() -> None:
    """Each kind of fault is registered under its own name."""
    assert set(FAULTS) == KINDS
    assert all(fault.kind == kind for kind, fault in FAULTS.items())


@pytest.mark.parametrize("kind", sorted(set(FAULTS) - APART))
async def test_fault_fires_or_says_why_not(arena: FullArena, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault names its target and restores everything: no process stopped, no disk full, the clock correct."""
    for long in ("full-disk-long", "engine-away"):
        monkeypatch.setattr(FAULTS[long], "seconds", (0.2, 0.3))
    if kind in ENGINES:
        require(ENGINES[kind])
    if reason := FAULTS[kind].lacking(arena):
        pytest.skip(reason)
    assert await FAULTS[kind].fire(arena, Hasty(5))
    await until(lambda: all(seat.is_ready() and state(seat.pid()) not in {"T", "t"} for seat in arena.seats))
    await until(lambda: state(arena.engines[0].pids()[0]) in {"S", "R", "D"})
    assert not cast("FakeEngine", arena.engines[0]).is_hidden
    disk = cast("SmallDisk", arena.disk)
    assert disk.no_filling or disk.free_bytes() > 0
    clock, island = cast("SteppedClock", arena.clock), cast("NotedIsland", arena.islands["w-1"])
    assert clock.offset_ms == 0
    assert (kind in CLOCKS) == (len(clock.steps) == 2)
    assert [sum(cut) for cut in island.cuts] == ([1, 1, 0] if kind == "partition" else [])


async def test_aimed_fault_hits_its_aim_alone(arena: FullArena) -> None:
    """An aimed fault names its aim in its kind, hits nothing else, and is not fired if the aim does not exist."""
    role = arena.seats[0].role
    fault = fault_of(f"kill {role}")
    assert fault.kind == f"kill {role}"
    assert (await fault.fire(arena, Hasty(5))).startswith(role)
    for name in ("kill nobody", "engine-crash nothing"):
        with pytest.raises(NotNowError):
            await fault_of(name).fire(arena, Hasty(5))


async def test_fault_says_why_it_cannot_be_fired(tmp_path: Path) -> None:
    """In an arena with only a process, a fault that needs more gives its reason in a sentence."""
    async with seated(tmp_path, "server") as bare:
        assert {kind for kind, fault in FAULTS.items() if len(fault.lacking(bare).split()) > 3} >= NEEDY


@pytest.mark.parametrize("kind", sorted(ROADS))
async def test_fault_of_an_unused_proxy_is_not_fired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A fault of a proxy that no client uses does not count as fired."""
    monkeypatch.setattr(wait_until, "FELT_S", 0.01)
    arena = FullArena(tmp_path, [])
    async with serving() as server, proxied(server.port) as proxy:
        arena.proxies = {"clients": proxy}
        with pytest.raises(NotNowError):
            await FAULTS[kind].fire(arena, Hasty(5))


async def test_partition_without_a_lost_packet_is_not_fired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition without a lost packet does not count as fired, and the network is restored."""
    monkeypatch.setattr(wait_until, "FELT_S", 0.01)
    arena, island = FullArena(tmp_path, []), NotedIsland()
    arena.islands, island.is_used = {"w-1": island}, False
    with pytest.raises(NotNowError):
        await FAULTS["partition"].fire(arena, Hasty(5))
    assert island.cuts[-1] == (False, False)


async def test_resets_of_workers_count_if_they_came_back_in_between(arena: FullArena) -> None:
    """A series of resets counts if the workers reconnect between the resets."""
    fault, proxy = FAULTS["resets"], cast("TcpProxy", arena.proxies["clients"])
    assert len(fault.lacking(arena).split()) > 3
    arena.proxies = {"workers": proxy}
    assert fault.lacking(arena) == ""
    before = proxy.effects().cut
    assert "road of the workers" in await fault.fire(arena, Hasty(5))
    assert proxy.effects().cut - before >= 4


async def test_resets_without_connections_are_not_fired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resets of a proxy without connections do not count as fired."""
    monkeypatch.setattr(network_faults, "_BETWEEN_S", (0.0, 0.01))
    arena = FullArena(tmp_path, [])
    async with serving() as server, proxied(server.port) as proxy:
        arena.proxies = {"workers": proxy}
        with pytest.raises(NotNowError):
            await FAULTS["resets"].fire(arena, Hasty(5))


async def test_clock_is_set_while_the_keeper_of_a_journal_is_stopped(arena: FullArena) -> None:
    """The fault stops the process with the journal as expected, and its successor starts with the other clock."""
    keeper, clock = arena.seats[0], cast("SteppedClock", arena.clock)
    told = await FAULTS["clock-restart"].fire(arena, Hasty(5))
    assert "server s-1" in told
    assert len(keeper.pids) == 2
    assert arena.expected == keeper.pids[:1]
    assert abs(clock.steps[0]) >= 60_000
    assert clock.steps[1] == 0


#: Accepts connections, and waits while it has no free descriptor. It closes idle connections above 20 if told so.
ACCEPTING = """
import socket, sys, time
listening = socket.create_server(("127.0.0.1", 0), backlog=1000)
print(listening.getsockname()[1], flush=True)
held = []
while True:
    try:
        held.append(listening.accept()[0])
    except OSError:
        time.sleep(0.01)
    if len(held) > 20 and sys.argv[1] == "bounded":
        held.pop(0).close()
"""


@asynccontextmanager
async def accepting(folder: Path, how: str) -> AsyncIterator[tuple[FullArena, int]]:
    """An arena of one server that accepts connections, and its pid."""
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", ACCEPTING, how, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        await server.stdout.readline()
        arena, seat = FullArena(folder, []), Seated(server.pid)
        arena.processes = lambda: [seat]  # type: ignore[method-assign]
        assert FAULTS["descriptors"].lacking(arena) == ""
        yield arena, server.pid
        await until(lambda: not [task for task in asyncio.all_tasks() if "_IdleConnections" in str(task.get_coro())])
    finally:
        server.kill()
        await server.wait()


async def test_server_has_no_free_descriptor_for_a_while(tmp_path: Path) -> None:
    """The fault uses up the last descriptor of a server, and restores its limit."""
    async with accepting(tmp_path, "bounded") as (arena, pid):
        limit = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        told = await FAULTS["descriptors"].fire(arena, Hasty(5))
        assert "of 24 connections" in told
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == limit


async def test_server_that_keeps_idle_connections_afterwards_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that has been without descriptors and then closes no idle connection has not recovered."""
    monkeypatch.setattr(descriptor_exhaustion, "_CLOSED_S", 0.2)
    async with accepting(tmp_path, "unbounded") as (arena, _):
        with pytest.raises(UnrecoveredError, match="closed only 0 of 128 idle connections"):
            await FAULTS["descriptors"].fire(arena, Hasty(5))


async def test_server_that_uses_no_descriptor_is_not_exhausted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that did not use up the last descriptor does not count as fired."""
    monkeypatch.setattr(descriptor_exhaustion, "FELT_S", 0.1)
    monkeypatch.setattr(descriptor_exhaustion, "_EXHAUSTING", 0)
    async with accepting(tmp_path, "bounded") as (arena, pid):
        limit = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        with pytest.raises(NotNowError, match="free descriptors"):
            await FAULTS["descriptors"].fire(arena, Hasty(5))
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == limit


async def test_sessions_of_workers_are_not_duplicated(arena: FullArena) -> None:
    """The fault does not duplicate workers' connections, because a second session with one id ends the first."""
    fault = FAULTS["duplicate"]
    arena.proxies = {"clients": arena.proxies["clients"], "workers": arena.proxies["clients"]}
    told = [await fault.fire(arena, Hasty(seed)) for seed in range(4)]
    assert [words for words in told if "clients" not in words] == []
    arena.proxies = {"workers": arena.proxies["workers"]}
    assert fault.lacking(arena)
