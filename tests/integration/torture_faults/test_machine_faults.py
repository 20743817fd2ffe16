"""Disks, syncs, clocks and networks of this machine; a test that lacks a permission is skipped with its reason."""

import asyncio
import errno
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.clock import SystemClock, system_clock
from holdfast_lab.torture.faults import machine_faults, namespaces, slow_syncs
from holdfast_lab.torture.faults.clock_file import FileClock
from holdfast_lab.torture.faults.disks import SmallDisk
from holdfast_lab.torture.faults.machine_faults import FullDisk, SlowDisk
from holdfast_lab.torture.faults.namespaces import Namespace
from holdfast_lab.torture.faults.proxy import TcpProxy
from holdfast_lab.torture.ports import NotNowError
from scripts.engines import IPROUTE, MOUNT, STRACE
from tests.e2e.wait_until import eventually
from tests.engines import cannot_run, require
from tests.integration.conftest import Start
from tests.integration.torture_faults.fake_arena import BareArena, Seat, seated, syncing
from tests.integration.torture_faults.proxy_peers import DEADLINE_S, Server, serving, until

DAY_MS = 86_400_000
MINUTE_MS = 60_000

TELLING = """
from holdfast.clock import system_clock
clock = system_clock()
while input():
    print(clock.wall_ms(), clock.steady_ms(), flush=True)
"""
#: Connects, sends every line of its input, and prints every byte that it receives.
SPEAKING = """
import socket, sys, threading
line = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def hear():
    while heard := line.recv(1):
        print(heard.decode(), flush=True)
threading.Thread(target=hear, daemon=True).start()
for said in sys.stdin:
    line.sendall(said.strip().encode())
"""
OWNING = """
from holdfast_lab.torture.faults.namespaces import Namespace
print(Namespace().name, flush=True)
input()
"""


def require_disk(disk: SmallDisk) -> None:
    """Skips the test where no small file system can be mounted."""
    require(MOUNT)
    if disk.no_filling:
        cannot_run(MOUNT, disk.no_filling)


def require_tracing() -> None:
    """Skips the test where no process can be traced."""
    require(STRACE)
    if reason := slow_syncs.lacking():
        cannot_run(STRACE, reason)


def require_namespaces() -> None:
    """Skips the test where no network namespace can be created."""
    require(IPROUTE)
    if reason := namespaces.lacking():
        cannot_run(IPROUTE, reason)


# -- clocks


def test_clock_of_a_process_is_stepped_while_it_runs(tmp_path: Path) -> None:
    """A process's wall clock follows the file at once in both directions, and its steady clock does not."""
    clock = FileClock(tmp_path / "clock")
    ours = SystemClock()
    with subprocess.Popen(
        [sys.executable, "-c", TELLING],
        env={**os.environ, **clock.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for step_ms in (0, DAY_MS, -DAY_MS, 3_600_000, 0):
            clock.step(step_ms)
            process.stdin.write("now\n")
            process.stdin.flush()
            wall_ms, steady_ms = map(int, process.stdout.readline().split())
            assert abs(wall_ms - ours.wall_ms() - step_ms) < MINUTE_MS
            assert abs(steady_ms - ours.steady_ms()) < MINUTE_MS
        process.stdin.close()


def test_clock_is_true_unless_the_environment_names_a_file(tmp_path: Path) -> None:
    """Without the variable the clock is the machine's, and a missing file is an error."""
    assert [type(system_clock(told)) for told in ({}, {"HOLDFAST_CLOCK_FILE": ""})] == [SystemClock, SystemClock]
    with pytest.raises(FileNotFoundError):
        system_clock({"HOLDFAST_CLOCK_FILE": str(tmp_path / "none")})


async def test_server_decides_by_the_stepped_clock(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that was started with the variable uses the time of the file."""
    clock = FileClock(tmp_path / "clock")
    clock.step(DAY_MS)
    monkeypatch.setenv("HOLDFAST_CLOCK_FILE", str(clock.path))
    server = await start()
    now_ms = (await server.admin.stats()).now_ms
    assert abs(now_ms - SystemClock().wall_ms() - DAY_MS) < MINUTE_MS


# -- disks


def test_small_disk_is_full_and_heals(tmp_path: Path) -> None:
    """A full disk refuses new bytes except into reserved space, has space after the fault, and is unmounted."""
    with SmallDisk(tmp_path / "small", 4 << 20) as disk:
        require_disk(disk)
        with (disk.path / "journal").open("wb", buffering=0) as journal:
            os.posix_fallocate(journal.fileno(), 0, 1 << 20)
            for _ in range(2):
                disk.fill()
                with pytest.raises(OSError, match="No space left") as caught:
                    (disk.path / "new").write_bytes(b"x")
                assert caught.value.errno == errno.ENOSPC
                assert journal.write(bytes(65_536)) == 65_536
            (disk.path / "new").unlink()
            disk.free()
            assert (disk.path / "new").write_bytes(bytes(1 << 20)) == 1 << 20
    assert not os.path.ismount(disk.path)
    disk.close()


async def test_full_disk_that_affects_no_process_is_not_fired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk that affects no process does not count as fired, and has space afterwards."""
    monkeypatch.setattr(machine_faults, "_USED_UP_S", 0.01)
    arena = BareArena(tmp_path, [])
    with SmallDisk(tmp_path / "small", 1 << 20) as disk:
        require_disk(disk)
        arena.disk = disk
        with pytest.raises(NotNowError):
            await FullDisk.short().fire(arena, random.Random(7))
        assert disk.free_bytes() > 0


def test_disk_that_is_still_in_use_is_unmounted(tmp_path: Path) -> None:
    """A disk with an open file is unmounted nevertheless."""
    disk = SmallDisk(tmp_path / "small", 1 << 20)
    require_disk(disk)
    with (disk.path / "open").open("wb"):
        disk.close()
        assert not os.path.ismount(disk.path)


# -- syncs


def is_traced(pid: int) -> bool:
    return "TracerPid:\t0\n" not in Path(f"/proc/{pid}/status").read_text()


def ended_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


async def test_syncs_of_a_process_are_held_up(tmp_path: Path) -> None:
    """The tracer counts each sync that it delays, and the process runs on without a tracer afterwards."""
    require_tracing()
    arena = BareArena(tmp_path, [Seat("server", "s-1", syncing(tmp_path))])
    try:
        await until(lambda: arena.seats[0].is_ready() and (tmp_path / "journal").exists())
        pid = arena.seats[0].pid()
        async with slow_syncs.slow_syncs([pid], 0.01) as held_up:
            await until(lambda: held_up() >= 3)
        assert not is_traced(pid)
        written = (tmp_path / "journal").stat().st_size
        await until(lambda: (tmp_path / "journal").stat().st_size > written)
    finally:
        await arena.stop()


async def test_slow_disk_skips_processes_without_an_open_file_of_the_arena(tmp_path: Path) -> None:
    """The fault does not trace a process without an open file of the arena, and does not count as fired."""
    require_tracing()
    async with seated(tmp_path, "worker") as arena:
        await until(arena.seats[0].is_ready)
        with pytest.raises(NotNowError):
            await SlowDisk().fire(arena, random.Random(1))


async def test_process_that_is_gone_cannot_be_traced() -> None:
    """A slow disk for a process that has ended does not count as fired."""
    require_tracing()
    with pytest.raises(NotNowError):
        async with slow_syncs.slow_syncs([ended_pid()], 0.01):
            pass


# -- networks


@asynccontextmanager
async def speaker(namespace: Namespace, proxy: TcpProxy) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process inside the namespace, connected to the proxy."""
    command = namespace.command([sys.executable, "-c", SPEAKING, namespace.outside, str(proxy.port)])
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    try:
        yield process
    finally:
        process.kill()
        await process.communicate()


async def test_network_loses_one_direction_and_then_the_other() -> None:
    """Bytes in a cut direction arrive after the repair on the same connection, and the other direction works."""
    require_namespaces()
    with Namespace() as namespace:
        async with serving() as server:
            proxy = await TcpProxy.open("127.0.0.1", server.port, host=namespace.outside)
            try:
                async with speaker(namespace, proxy) as process:
                    await _directions(namespace, server, process)
            finally:
                await proxy.close()


async def _directions(namespace: Namespace, server: Server, process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"a\n")
    heard = await server.heard(b"a")
    # The process cannot send but can receive; its sent packets are counted nevertheless.
    namespace.cut(towards_server=True, towards_client=False)
    sent = namespace.sent(towards_server=True)
    process.stdin.write(b"b\n")
    await until(lambda: namespace.sent(towards_server=True) > sent)
    heard.writer.write(b"1")
    assert await asyncio.wait_for(process.stdout.readline(), DEADLINE_S) == b"1\n"
    assert bytes(heard.said) == b"a"
    namespace.mend()
    await server.heard(b"ab")
    # An acknowledged byte, so that the next one is not delayed by it.
    heard.writer.write(b"2")
    assert await asyncio.wait_for(process.stdout.readline(), DEADLINE_S) == b"2\n"
    # The process cannot receive but can send.
    namespace.cut(towards_server=False, towards_client=True)
    sent = namespace.sent(towards_server=False)
    heard.writer.write(b"3")
    await until(lambda: namespace.sent(towards_server=False) > sent)
    process.stdin.write(b"c\n")
    await server.heard(b"abc")
    namespace.mend()
    assert await asyncio.wait_for(process.stdout.readline(), DEADLINE_S) == b"3\n"
    assert len(server.connections) == 1


def test_namespaces_leave_nothing_behind() -> None:
    """Several namespaces have different addresses, and leave neither names nor devices."""
    require_namespaces()
    with Namespace() as one, Namespace() as two:
        assert len({one.outside, one.inside, two.outside, two.inside}) == 4
        names = [one.name, two.name]
        devices = [f"hf{name.removeprefix('holdfast-')}o" for name in names]
        assert all(Path(f"/sys/class/net/{device}").exists() for device in devices)
        one.close()
    eventually(
        lambda: [device for device in devices if Path(f"/sys/class/net/{device}").exists()], lambda left: not left
    )
    assert [name for name in names if Path(f"/run/netns/{name}").exists()] == []


def owning() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", OWNING], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_new_namespace_removes_the_leftovers_of_a_killed_owner() -> None:
    """A new namespace removes the leftovers of a killed owner, and keeps those in use."""
    require_namespaces()
    with Namespace() as ours, owning() as owner:
        assert owner.stdout is not None
        left = Path("/run/netns") / owner.stdout.readline().decode().strip()
        assert left.exists()
        owner.kill()
        owner.wait()
        Namespace().close()
        eventually(left.exists, lambda is_there: not is_there)  # other processes may be removing it at the same time
        assert (left.parent / ours.name).exists()


def test_process_inside_is_the_command_itself() -> None:
    """The started process is the command itself: it gets the signals, and its status is the command's."""
    require_namespaces()
    with Namespace() as namespace:
        command = namespace.command([sys.executable, "-c", "import os; print(os.getpid()); raise SystemExit(7)"])
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            told, _ = process.communicate(timeout=DEADLINE_S)
        assert (int(told), process.returncode) == (process.pid, 7)
