"""Kills and stops of real processes."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast_lab.torture.faults.kills import KillFault, KillMany, KillStarting
from holdfast_lab.torture.faults.pauses import EngineCrash, EngineStop, Stop, stopped
from holdfast_lab.torture.faults.targets import Pidfds, state
from holdfast_lab.torture.ports import NotNowError
from tests.e2e.wait_until import eventually
from tests.integration.torture_faults.fake_arena import SLEEPING, BareArena, FakeEngine, Seat, seated
from tests.integration.torture_faults.proxy_peers import DEADLINE_S, until

#: Stops a process and waits without end.
STOPPING = """
import asyncio, sys
from holdfast_lab.torture.faults.pauses import stopped
async def main():
    async with stopped([int(sys.argv[1])], "test"):
        await asyncio.Event().wait()
asyncio.run(main())
"""


class Vanishing(Seat):
    """A seat whose first successor has no pid for an instant after a check whether it is ready."""

    is_vanishing = False
    vanished = 0

    def pid(self) -> int:
        if self.is_vanishing:
            self.is_vanishing = False
            self.vanished += 1
            return 0
        return super().pid()

    def is_ready(self) -> bool:
        is_ready = super().is_ready()
        self.is_vanishing = len(self.pids) > 1 and not self.vanished
        return is_ready


class Racing(BareArena):
    """An arena whose first process is killed elsewhere at the moment in which a fault announces its kill."""

    def expect(self, pid: int) -> None:
        super().expect(pid)
        if pid == self.seats[0].pids[0]:
            os.kill(pid, signal.SIGKILL)
            eventually(lambda: state(pid), lambda now: now == "")


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(SLEEPING)


async def test_kills_give_every_role_its_turn(tmp_path: Path) -> None:
    """Within a few kills every role is hit with any seed, and each kill is announced first."""
    async with seated(tmp_path, "server", "worker", "worker", "gateway") as arena:
        await until(lambda: all(seat.is_ready() for seat in arena.seats))
        draw = random.Random(3)
        told = [await KillFault().fire(arena, draw) for _ in range(12)]
        assert {words.split()[0] for words in told} == {"server", "worker", "gateway"}
        gone = [pid for seat in arena.seats for pid in seat.pids if pid != seat.pid()]
        assert sorted(gone) == sorted(arena.expected)
        assert len(gone) == 12


async def test_starting_successor_is_killed_too(tmp_path: Path) -> None:
    """The fault kills a starting successor too, and a running process remains."""
    async with seated(tmp_path, "server") as arena:
        await until(arena.seats[0].is_ready)
        told = await KillStarting().fire(arena, random.Random(1))
        times = int(told.split(", ")[1].split()[0])
        assert times >= 2
        assert len(arena.seats[0].pids) == times + 1


async def test_all_processes_of_a_role_are_killed_at_once(tmp_path: Path) -> None:
    """The fault announces and kills all processes of one role."""
    async with seated(tmp_path, "worker", "worker", "worker") as arena:
        await until(lambda: all(seat.is_ready() for seat in arena.seats))
        told = await KillMany().fire(arena, random.Random(1))
        assert told == "worker worker-0, worker worker-1, worker worker-2"
        assert all(seat.pids[0] in arena.expected for seat in arena.seats)


async def test_kill_without_a_process_is_not_fired(tmp_path: Path) -> None:
    """A kill without a process to kill does not count as fired."""
    async with seated(tmp_path) as arena:
        assert KillFault().lacking(arena)
        with pytest.raises(NotNowError):
            await KillFault().fire(arena, random.Random(1))


async def test_stopped_process_goes_on_although_the_fault_was_given_up(tmp_path: Path) -> None:
    """A stopped process continues when its fault is canceled."""
    async with seated(tmp_path, "worker") as arena:
        await until(arena.seats[0].is_ready)
        pid = arena.seats[0].pid()
        firing = asyncio.create_task(Stop("stop", (DEADLINE_S, DEADLINE_S)).fire(arena, random.Random(1)))
        await until(lambda: state(pid) == "T")
        firing.cancel()
        await asyncio.gather(firing, return_exceptions=True)
        assert firing.cancelled()
        await until(lambda: state(pid) == "S")
        assert arena.seats[0].pids == [pid]


async def test_process_that_ends_while_it_is_stopped_is_no_trouble() -> None:
    """A process that is killed while it is stopped causes no error, and cannot be stopped again."""
    with sleeper() as process:
        async with stopped([process.pid], "a process"):
            process.kill()
        assert process.wait() == -signal.SIGKILL
        with pytest.raises(NotNowError):
            async with stopped([process.pid], "a process"):
                pass


def test_stopped_process_continues_when_its_stopper_is_killed() -> None:
    """A stopped process continues when the process that stopped it is killed, because a guard sends the signal."""
    with sleeper() as process, subprocess.Popen([sys.executable, "-c", STOPPING, str(process.pid)]) as owner:
        try:
            eventually(lambda: state(process.pid), lambda now: now == "T")
            owner.kill()
            eventually(lambda: state(process.pid), lambda now: now == "S")
        finally:
            process.kill()


async def test_successor_that_is_gone_already_does_not_undo_the_fault(tmp_path: Path) -> None:
    """A kill counts as fired, although the successor was gone for an instant."""
    arena = BareArena(tmp_path, [seat := Vanishing("server", "s-1")])
    try:
        await until(seat.is_ready)
        told = await KillStarting().fire(arena, random.Random(1))
        times = int(told.split(", ")[1].split()[0])
        assert (seat.vanished, len(seat.pids)) == (1, times + 1)
    finally:
        await arena.stop()


async def test_kill_of_a_role_names_only_the_processes_it_killed(tmp_path: Path) -> None:
    """A kill of a whole role names only the processes that it killed itself."""
    arena = Racing(tmp_path, [Seat("worker", "w-1"), Seat("worker", "w-2")])
    try:
        await until(lambda: all(seat.is_ready() for seat in arena.seats))
        assert await KillMany().fire(arena, random.Random(1)) == "worker w-2"
    finally:
        await arena.stop()


def test_ended_process_gets_no_signal() -> None:
    """A signal through a descriptor never reaches another process with the same pid."""
    with sleeper() as process, Pidfds([process.pid, os.getpid()]) as held:
        process.kill()
        process.wait()
        assert held.send(signal.SIGCONT) == [os.getpid()]


async def test_engine_stands_still_and_goes_on(tmp_path: Path) -> None:
    """All processes of an engine stop for the duration of the fault and then continue."""
    engine = FakeEngine()
    try:
        async with seated(tmp_path) as arena:
            assert EngineStop().lacking(arena)
            arena.engines = [engine]
            is_seen = False
            while not is_seen:  # the fault may end before the check
                firing = asyncio.create_task(EngineStop().fire(arena, random.Random(1)))
                await until(lambda firing=firing: firing.done() or state(engine.process.pid) == "T")  # type: ignore[misc]
                is_seen = state(engine.process.pid) == "T"
                assert (await firing).startswith("engine, ")
                await until(lambda: state(engine.process.pid) == "S")
    finally:
        engine.close()


async def test_crashed_engine_is_brought_back_although_the_fault_was_given_up(tmp_path: Path) -> None:
    """A canceled crash of an engine waits until the engine runs again."""
    begun, may_end = asyncio.Event(), asyncio.Event()

    class SlowEngine(FakeEngine):
        async def crash(self) -> None:
            begun.set()
            await may_end.wait()
            await super().crash()

    engine = SlowEngine()
    try:
        async with seated(tmp_path) as arena:
            arena.engines = [engine]
            firing = asyncio.create_task(EngineCrash().fire(arena, random.Random(1)))
            await begun.wait()
            firing.cancel()
            may_end.set()
            await asyncio.gather(firing, return_exceptions=True)
            assert (firing.cancelled(), engine.crashes, engine.process.poll()) == (True, 1, None)
    finally:
        engine.close()
