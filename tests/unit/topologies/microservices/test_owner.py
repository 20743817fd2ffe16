"""The keeper of an owner: replies, durability and refusals."""

import asyncio
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError, NotFoundError, ResourceExhaustedError, UnavailableError
from holdfast.journal.errors import DirectoryLockedError
from holdfast.testing.clock import ManualClock
from holdfast.topologies.microservices.services.owner import OwnerDecision, StateOwner
from holdfast_lab.simulation.disk import SimDisk
from tests.unit.topologies.microservices.word_owner import (
    COMPACT_BYTES,
    REFUSAL,
    Held,
    Words,
    compacting,
    keeper_on,
    say,
)


def sim_disk() -> SimDisk:
    return SimDisk(random.Random(7))


def open_at(data: Path | None, machine: Words, compact_bytes: int = COMPACT_BYTES) -> StateOwner:
    def never(error: BaseException) -> None:
        raise error

    return StateOwner.open(
        machine,
        data,
        clock=SystemClock(),
        loop=asyncio.get_running_loop(),
        fatal=never,
        snapshots=compacting(compact_bytes),
    )


def files(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


async def turns() -> None:
    """Lets all ready tasks run."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_answer_waits_for_the_sync_while_others_are_decided() -> None:
    """Every reply waits until the events before it are durable, and one sync serves many calls."""
    sync, machine = Held(), Words()
    state_owner = keeper_on(sim_disk(), machine, sync=sync)
    first = asyncio.ensure_future(state_owner.act(say("one")))
    await turns()
    later = [
        asyncio.ensure_future(state_owner.act(say("two"))),
        asyncio.ensure_future(state_owner.read(lambda _: list(machine.words))),
        asyncio.ensure_future(state_owner.act(lambda _: REFUSAL)),
        asyncio.ensure_future(state_owner.act(lambda _: OwnerDecision(None, "nothing"))),
        asyncio.ensure_future(state_owner.act(say("three"))),
    ]
    await turns()
    assert machine.words == ["one", "two", "three"], "the events are applied at once"
    assert not any(task.done() for task in [first, *later])
    assert len(sync.held) == 1
    sync.go()
    await turns()
    assert first.result() == "one"
    assert not any(task.done() for task in later)
    sync.go()
    await turns()
    assert not sync.held
    assert [later[index].result() for index in (0, 1, 3, 4)] == ["two", ["one", "two"], "nothing", "three"]
    with pytest.raises(NotFoundError) as refused:
        later[2].result()
    assert refused.value.reason == "NO_WORD"


async def test_caller_that_cancels_affects_no_other_reply() -> None:
    """A caller that cancels while its event is synced affects no other reply, and its event is still announced."""
    sync, machine, told = Held(), Words(), list[str]()
    state_owner = keeper_on(sim_disk(), machine, sync=sync)
    verdict = OwnerDecision("one", told=lambda: told.append("one"))
    impatient = asyncio.ensure_future(state_owner.act(lambda _: verdict))
    patient = asyncio.ensure_future(state_owner.act(say("two")))
    await turns()
    impatient.cancel()
    await turns()
    assert told == []
    sync.go()
    await turns()
    assert told == ["one"]
    assert patient.result() == "two"
    assert machine.words == ["one", "two"]


async def test_time_never_goes_back() -> None:
    """The time of decisions never goes back, within a process and over a restart."""
    disk, clock = sim_disk(), ManualClock()
    state_owner = keeper_on(disk, Words(), clock=clock)
    began = await state_owner.act(lambda now_ms: OwnerDecision("a", now_ms))
    clock.advance(100)
    later = await state_owner.act(lambda now_ms: OwnerDecision("b", now_ms))
    assert later == began + 100_000
    clock._wall_ms -= 50_000
    assert await state_owner.read(lambda now_ms: now_ms) == later
    clock.advance(1)
    assert await state_owner.read(lambda now_ms: now_ms) == later + 1_000
    await state_owner.close()
    state_owner = keeper_on(disk, Words(), clock=clock)
    assert await state_owner.read(lambda now_ms: now_ms) >= later


async def test_without_room_nothing_changes() -> None:
    """A full disk refuses an event before it is applied, first those that must leave spare space."""
    disk, machine = sim_disk(), Words()
    state_owner = keeper_on(disk, machine)
    await state_owner.act(say("one"))
    disk.faults.free_bytes = 0
    patient = OwnerDecision("two", "two", spare=17 << 20)
    before = state_owner.position, machine.digest
    with pytest.raises(ResourceExhaustedError) as refused:
        await state_owner.act(lambda _: patient)
    assert refused.value.reason == "NO_SPACE"
    assert (state_owner.position, machine.digest) == before
    assert await state_owner.act(say("three")) == "three"
    disk.faults.free_bytes = None
    assert await state_owner.act(lambda _: patient) == "two"
    assert machine.words == ["one", "three", "two"]


async def test_events_beyond_the_frame_size_are_refused_during_a_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a sync runs, events beyond the size of a frame are refused and change nothing."""
    monkeypatch.setattr("holdfast.topologies.microservices.services.owner.OPEN_FRAME_BYTES_MAX", 1_000)
    sync, machine = Held(), Words()
    state_owner = keeper_on(sim_disk(), machine, sync=sync)
    tasks = [asyncio.ensure_future(state_owner.act(say("one")))]
    await turns()
    big = "x" * 600
    tasks += [asyncio.ensure_future(state_owner.act(say(big))) for _ in range(2)]
    await turns()
    with pytest.raises(ResourceExhaustedError) as refused:
        tasks[2].result()
    assert refused.value.reason == "OVERLOADED"
    assert len(machine.words) == 2
    sync.go()
    await turns()
    sync.go()
    await turns()
    assert tasks[1].result() == big


@pytest.mark.parametrize("fault", ["fail_next_sync", "fail_next_write"])
async def test_failed_write_or_sync_is_final(fault: str) -> None:
    """After a failed write or sync the keeper reports a fatal error, and every call fails without touching the disk."""
    disk, machine, failures = sim_disk(), Words(), list[BaseException]()
    state_owner = keeper_on(disk, machine, failures=failures)
    await state_owner.act(say("one"))
    setattr(disk.faults, fault, True)
    with pytest.raises(UnavailableError) as failed:
        await state_owner.act(say("two"))
    assert failed.value.reason == "JOURNAL_FAILED"
    assert len(failures) == 1
    operations = disk.operations
    for call in (state_owner.act(say("three")), state_owner.read(lambda _: 1)):
        with pytest.raises(UnavailableError):
            await call
    await state_owner.close()
    assert disk.operations == operations, "no call touches the disk after the first failure"
    machine = Words()
    keeper_on(disk.crash(), machine)
    assert machine.words == ["one"]


async def test_machine_that_fails_to_apply_stops_everything() -> None:
    """If applying an event fails, the keeper stops, because its state may differ from the journal."""

    class Broken(Words):
        def apply(self, event: str) -> None:
            super().apply(event)
            raise RuntimeError(event)

    failures: list[BaseException] = []
    state_owner = keeper_on(sim_disk(), Broken(), failures=failures)
    with pytest.raises(RuntimeError):
        await state_owner.act(say("one"))
    assert [type(error) for error in failures] == [RuntimeError]
    with pytest.raises(UnavailableError):
        await state_owner.read(lambda _: 1)


async def test_broken_decision_changes_nothing() -> None:
    """An exception while deciding reaches only its caller and changes nothing."""
    machine = Words()
    state_owner = keeper_on(sim_disk(), machine)
    with pytest.raises(ZeroDivisionError):
        await state_owner.act(lambda now_ms: OwnerDecision(now_ms // 0))
    assert await state_owner.act(say("one")) == "one"


async def test_in_memory_needs_no_directory() -> None:
    """Without a directory the keeper works in memory and stores nothing."""
    machine = Words()
    state_owner = open_at(None, machine)
    assert await state_owner.act(say("one")) == "one"
    assert await state_owner.read(lambda _: machine.words) == ["one"]
    await state_owner.close()
    await state_owner.close()
    with pytest.raises(UnavailableError) as refused:
        await state_owner.act(say("two"))
    assert refused.value.reason == "STOPPING"


async def test_directory_is_kept_and_belongs_to_one(tmp_path: Path) -> None:
    """On a real disk many calls succeed, a second keeper is refused, and a restart has all words."""
    machine = Words()
    state_owner = open_at(tmp_path / "job", machine)
    words = [f"word {number}" for number in range(200)]
    assert await asyncio.gather(*(state_owner.act(say(word)) for word in words)) == words
    with pytest.raises(DirectoryLockedError):
        open_at(tmp_path / "job", Words())
    closing = asyncio.ensure_future(state_owner.act(say("last")))
    await asyncio.sleep(0)
    await state_owner.close()
    assert await closing == "last", "a call that was decided before the close gets its reply"
    again = Words()
    state_owner = open_at(tmp_path / "job", again)
    assert (again.words, again.digest) == ([*words, "last"], machine.digest)
    await state_owner.close()


async def test_real_threads_make_snapshots_beside_the_service(tmp_path: Path) -> None:
    """With real threads, snapshots replace segments while calls continue, and the state survives a restart."""
    machine = Words()
    state_owner = open_at(tmp_path, machine, compact_bytes=4_096)

    def is_first_there() -> bool:
        return any(file.name.startswith(f"{1:020d}-") for file in files(tmp_path))

    async with asyncio.timeout(60):
        while len(machine.words) < 400 or is_first_there():  # covered segments are removed, however late
            words = [f"word {len(machine.words) + number} {'x' * 50}" for number in range(20)]
            await asyncio.gather(*(state_owner.act(say(word)) for word in words))
    await state_owner.close()
    assert any(file.suffix == ".snap" for file in files(tmp_path))
    again = Words()
    state_owner = open_at(tmp_path, again, compact_bytes=4_096)
    assert (again.words, again.digest) == (machine.words, machine.digest)
    await state_owner.close()


async def test_state_is_never_encoded_on_the_thread_of_the_loop(tmp_path: Path) -> None:
    """The image of a snapshot is encoded on another thread than that of the loop."""
    encoded: list[tuple[bool, int]] = []

    class Watched(Words):
        def image(self) -> Iterator[bytes]:
            for chunk in super().image():
                encoded.append((threading.current_thread() is threading.main_thread(), len(chunk)))
                yield chunk

    state_owner = open_at(tmp_path, Watched(), compact_bytes=4_096)
    async with asyncio.timeout(60):
        while not encoded:
            await asyncio.gather(*(state_owner.act(say("x" * 50)) for _ in range(20)))
    await state_owner.close()
    assert sum(size for is_loop, size in encoded if is_loop) == 0
    assert sum(size for _, size in encoded) > 1_000


async def test_unusable_directory_is_an_error_of_ours(tmp_path: Path) -> None:
    """A damaged journal is refused with a HoldfastError."""
    state_owner = open_at(tmp_path, Words())
    await state_owner.act(say("one"))
    await state_owner.act(say("two"))
    await state_owner.close()
    segment = max(file for file in files(tmp_path) if file.suffix == ".seg")
    content = bytearray(segment.read_bytes())
    content[600] ^= 1
    segment.write_bytes(content)
    with pytest.raises(HoldfastError, match="damaged"):
        open_at(tmp_path, Words())
