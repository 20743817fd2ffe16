"""Faults of power, disk or program: the owner loses nothing acknowledged, and invents nothing."""

import asyncio
import contextlib
import errno
import random
from collections.abc import Callable, Iterable

import pytest
from structlog.testing import capture_logs

from holdfast.errors import HoldfastError
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.errors import JournalFailedError, PositionRemovedError, ReplayDivergedError, UnreadableEventError
from holdfast.topologies.microservices.services.owner_snapshots import ReplayBuilder
from holdfast_lab.simulation.disk import CrashMoment, SimDisk, SimulatedCrash
from tests.unit.topologies.microservices.word_owner import Held, Here, Words, keeper_on, say

WORDS = [f"word {number} {'x' * 40}" for number in range(14)]
#: Small enough that a few words roll segments, make snapshots and remove segments.
COMPACT_BYTES = 250


async def live(disk: SimDisk, acknowledged: list[str], words: Iterable[str] = WORDS) -> Words:
    """Opens a keeper, adds the words in groups of two, records acknowledged ones, and closes."""
    machine, pending = Words(), list(words)
    state_owner = keeper_on(disk, machine, compact_bytes=COMPACT_BYTES)
    while pending:
        group, pending = pending[:2], pending[2:]
        replies = await asyncio.gather(*(state_owner.act(say(word)) for word in group), return_exceptions=True)
        for reply in replies:
            if isinstance(reply, BaseException):
                raise reply
            acknowledged.append(reply)
    await state_owner.close()
    return machine


async def until_power_fails(disk: SimDisk, acknowledged: list[str]) -> bool:
    """Returns whether the run ended early."""
    try:
        await live(disk, acknowledged)
    except (HoldfastError, SimulatedCrash):
        return True
    return False


def retold(words: list[str]) -> Words:
    """Returns the state that these words must give."""
    machine = Words()
    for word in words:
        machine.apply(word)
    return machine


async def check_recovered(disk: SimDisk, acknowledged: list[str]) -> None:
    machine = Words()
    state_owner = keeper_on(disk, machine, compact_bytes=COMPACT_BYTES)
    kept = machine.words
    assert kept[: len(acknowledged)] == acknowledged, "every acknowledged word is recovered"
    assert kept == WORDS[: len(kept)], "no other word is recovered"
    assert machine.digest == retold(kept).digest
    assert await state_owner.act(say("afterwards")) == "afterwards"
    await state_owner.close()
    again = Words()
    await keeper_on(disk, again, compact_bytes=COMPACT_BYTES).close()
    assert (again.words, again.digest) == (machine.words, machine.digest)


@pytest.mark.parametrize("moment", ["before", "middle", "after"])
def test_power_cut_at_every_call_to_the_disk_loses_nothing(moment: CrashMoment) -> None:
    """After a power cut at any disk operation, the next start has all acknowledged words."""

    async def every_cut() -> int:
        for operation in range(1, 10_000):
            disk, acknowledged = SimDisk(random.Random(operation)), list[str]()
            disk.faults.crash_at_operation, disk.faults.crash_moment = operation, moment
            if not await until_power_fails(disk, acknowledged):
                return operation
            await check_recovered(disk.crash(), acknowledged)
        raise AssertionError("no run ended before its power cut")

    assert asyncio.run(every_cut()) > 100


def test_cuts_of_power_met_snapshots_and_removals() -> None:
    """The run that is cut at every operation does roll segments, make snapshots and remove covered segments."""
    disk, acknowledged = SimDisk(random.Random(1)), list[str]()
    asyncio.run(live(disk, acknowledged))
    assert acknowledged == WORDS
    names = disk.names()
    assert sum(name.endswith(".snap") for name in names) == 2
    assert not any(name.startswith(f"{1:020d}-") for name in names), (
        "the first segment, which both snapshots cover, is removed"
    )


FAULTS = ["fail_next_write", "fail_next_sync"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("before", range(0, len(WORDS), 3))
async def test_failure_of_the_journal_loses_nothing(fault: str, before: int) -> None:
    """After a failed write or sync no call is acknowledged, and the next start has all acknowledged words."""
    disk, acknowledged, failures = SimDisk(random.Random(before)), list[str](), list[BaseException]()
    state_owner = keeper_on(disk, Words(), failures=failures, compact_bytes=COMPACT_BYTES)
    for word in WORDS[:before]:
        acknowledged.append(await state_owner.act(say(word)))
    setattr(disk.faults, fault, True)
    replies = await asyncio.gather(*(state_owner.act(say(word)) for word in WORDS[before:]), return_exceptions=True)
    assert all(isinstance(reply, HoldfastError) for reply in replies)
    assert len(failures) == 1
    await state_owner.close()
    await check_recovered(disk.crash(), acknowledged)


def never(error: BaseException) -> None:
    raise error


class FaultyMaker(ReplayBuilder):
    """Makes the disk fail once at each snapshot, and never at a frame."""

    def __init__(self, disk: SimDisk, fault: str) -> None:
        super().__init__(Words(), DirectoryArchive(disk), Here(), never)
        self._faults = disk.faults
        self._fault = fault

    def start(self, done: Callable[[str], None]) -> None:
        setattr(self._faults, self._fault, True)
        super().start(done)
        assert not getattr(self._faults, self._fault), "the disk has failed"


@pytest.mark.parametrize("fault", [*FAULTS, "fail_next_sync_dir"])
async def test_failure_of_a_snapshot_is_told_and_harms_nothing(fault: str) -> None:
    """A failed snapshot is logged, the journal continues, and no incomplete snapshot is left."""
    disk, acknowledged, failures = SimDisk(random.Random(1)), list[str](), list[BaseException]()
    maker = FaultyMaker(disk, fault)
    state_owner = keeper_on(disk, Words(), failures=failures, maker=maker, compact_bytes=COMPACT_BYTES)
    with capture_logs() as lines:
        for word in WORDS:
            acknowledged.append(await state_owner.act(say(word)))
    assert any(line["event"] == "snapshot_failed" for line in lines)
    assert not failures
    assert not any(name.endswith(".snap") for name in disk.names())
    await check_recovered(disk.crash(), acknowledged)


async def test_segment_that_cannot_be_removed_ends_the_journal() -> None:
    """If a segment cannot be removed, the journal fails as after a failed sync."""

    class Stubborn(SimDisk):
        def remove(self, name: str) -> None:
            if name.endswith(".seg"):
                raise OSError(errno.EIO, "no")
            super().remove(name)

    disk, acknowledged, failures = Stubborn(random.Random(1)), list[str](), list[BaseException]()
    state_owner = keeper_on(disk, Words(), failures=failures, compact_bytes=COMPACT_BYTES)
    for word in WORDS:
        with contextlib.suppress(HoldfastError):
            acknowledged.append(await state_owner.act(say(word)))
    assert len(acknowledged) < len(WORDS)
    assert [type(error) for error in failures] == [JournalFailedError]
    await state_owner.close()
    machine = Words()
    keeper_on(SimDisk(random.Random(2), disk.crash().files()), machine, compact_bytes=COMPACT_BYTES)
    assert machine.words[: len(acknowledged)] == acknowledged


async def test_snapshot_is_of_one_frame_while_others_go_on() -> None:
    """A snapshot holds the state of one frame, a second one waits for the first, and recovery gives the same state."""
    disk, machine, sync, aside = SimDisk(random.Random(1)), Words(), Held(), Held()
    maker = ReplayBuilder(machine, DirectoryArchive(disk), aside, never)
    state_owner = keeper_on(disk, machine, sync=sync, maker=maker, compact_bytes=COMPACT_BYTES)
    tasks = list[asyncio.Future[object]]()
    for word in WORDS:
        tasks.append(asyncio.ensure_future(state_owner.act(say(word))))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if len(sync.held) and len(tasks) % 3 == 0:
            sync.go()
            assert len(aside.held) <= 1
    while sync.held:
        sync.go()
    await asyncio.gather(*tasks)
    (_,) = aside.held
    aside.go()
    position = int(max(name for name in disk.names() if name.endswith(".snap"))[9:29])
    assert 0 < position < len(WORDS)
    again = Words()
    keeper_on(disk.crash(), again, compact_bytes=COMPACT_BYTES)
    assert (again.words, again.digest) == (WORDS, machine.digest)


async def test_snapshot_that_cannot_be_written_is_told_and_made_later() -> None:
    """A snapshot that fails on a full disk is logged and made later, and the journal continues."""

    class FullMaker(ReplayBuilder):
        is_full = True

        def start(self, done: Callable[[str], None]) -> None:
            disk.faults.free_bytes = 0 if self.is_full else None
            super().start(done)
            disk.faults.free_bytes = None

    disk, machine, failures = SimDisk(random.Random(1)), Words(), list[BaseException]()
    maker = FullMaker(machine, DirectoryArchive(disk), Here(), never)
    state_owner = keeper_on(disk, machine, failures=failures, maker=maker, compact_bytes=COMPACT_BYTES)
    with capture_logs() as lines:
        for word in WORDS:
            assert await state_owner.act(say(word)) == word
    assert any(line["event"] == "snapshot_failed" for line in lines)
    assert not any(name.endswith(".snap") for name in disk.names())
    maker.is_full = False
    for word in WORDS:
        await state_owner.act(say(word))
    assert any(name.endswith(".snap") for name in disk.names())
    assert not failures


async def test_damaged_snapshot_is_passed_over_aloud() -> None:
    """A start skips a damaged snapshot with a warning, and the state is the same."""
    disk = SimDisk(random.Random(1))
    machine = await live(disk, [])
    newest = max(name for name in disk.names() if name.endswith(".snap"))
    disk.flip_bit(newest, 8 * 100)
    again = Words()
    with capture_logs() as lines:
        await keeper_on(disk, again, compact_bytes=COMPACT_BYTES).close()
    assert (again.words, again.digest) == (machine.words, machine.digest)
    (line,) = [line for line in lines if line["event"] == "recovery"]
    assert "was passed over" in line["message"]


async def test_start_is_refused_where_no_good_snapshot_reaches_the_journal() -> None:
    """If both snapshots are damaged and earlier segments are gone, the start is refused."""
    disk = SimDisk(random.Random(1))
    await live(disk, [])
    for name in disk.names():
        if name.endswith(".snap"):
            disk.flip_bit(name, 8 * 100)
    before = disk.files()
    with pytest.raises(PositionRemovedError, match="restore"):
        keeper_on(disk, Words(), compact_bytes=COMPACT_BYTES)
    snapshots = {name: data for name, data in disk.files().items() if name.endswith(".snap")}
    assert snapshots.items() <= before.items()


async def test_replay_into_another_state_is_refused() -> None:
    """A start is refused if the replay gives another state, and changes nothing."""

    class Forgetful(Words):
        def apply(self, event: str) -> None:
            super().apply(event.upper())

    disk = SimDisk(random.Random(1))
    state_owner = keeper_on(disk, Words())
    await state_owner.act(say("one"))
    await state_owner.close()
    with pytest.raises(ReplayDivergedError):
        keeper_on(disk, Forgetful())
    again = Words()
    await keeper_on(disk, again).close()
    assert again.words == ["one"], "the refused start changes nothing"


async def test_event_of_another_version_is_refused() -> None:
    """A start is refused if the journal has an event that this version cannot read."""

    class Newer(Words):
        def encode(self, event: str) -> bytes:
            return b"\x07"

    disk = SimDisk(random.Random(1))
    state_owner = keeper_on(disk, Newer())
    await state_owner.act(say("one"))
    await state_owner.close()
    with pytest.raises(UnreadableEventError, match="start the version that wrote them"):
        keeper_on(disk, Words())
