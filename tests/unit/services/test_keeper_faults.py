"""What an owner keeps when power, disk or program fail: nothing acknowledged is lost, and nothing is made up."""

import asyncio
import contextlib
import errno
import random
from collections.abc import Callable, Iterable

import pytest
from structlog.testing import capture_logs

from holdfast.errors import HoldfastError
from holdfast.journal.errors import JournalFailedError, PositionRemovedError, ReplayDivergedError, UnreadableEventError
from holdfast.testing.disk import CrashMoment, SimDisk, SimulatedCrash
from tests.unit.services.keeper_words import Done, Held, Here, Words, keeper_on, say

WORDS = [f"word {number} {'x' * 40}" for number in range(14)]
#: So small that segments are rolled, snapshots made and segments removed within a few words.
COMPACT_BYTES = 250


async def live(disk: SimDisk, acknowledged: list[str], words: Iterable[str] = WORDS) -> Words:
    """One life: opens, says the words in groups of two, notes what was acknowledged, and closes in good order."""
    machine, pending = Words(), list(words)
    keeper = keeper_on(disk, machine, compact_bytes=COMPACT_BYTES)
    while pending:
        group, pending = pending[:2], pending[2:]
        replies = await asyncio.gather(*(keeper.act(say(word)) for word in group), return_exceptions=True)
        for reply in replies:
            if isinstance(reply, BaseException):
                raise reply
            acknowledged.append(reply)
    await keeper.close()
    return machine


async def until_power_fails(disk: SimDisk, acknowledged: list[str]) -> bool:
    """Whether the life ended before its time."""
    try:
        await live(disk, acknowledged)
    except (HoldfastError, SimulatedCrash):
        return True
    return False


def retold(words: list[str]) -> Words:
    """The state that these words must give."""
    machine = Words()
    for word in words:
        machine.apply(word)
    return machine


async def check_recovered(disk: SimDisk, acknowledged: list[str]) -> None:
    machine = Words()
    keeper = keeper_on(disk, machine, compact_bytes=COMPACT_BYTES)
    kept = machine.words
    assert kept[: len(acknowledged)] == acknowledged, "what was acknowledged is there"
    assert kept == WORDS[: len(kept)], "and nothing is that was not said"
    assert machine.digest == retold(kept).digest
    assert await keeper.act(say("afterwards")) == "afterwards"
    await keeper.close()
    again = Words()
    await keeper_on(disk, again, compact_bytes=COMPACT_BYTES).close()
    assert (again.words, again.digest) == (machine.words, machine.digest)


@pytest.mark.parametrize("moment", ["before", "middle", "after"])
def test_power_cut_at_every_call_to_the_disk_loses_nothing(moment: CrashMoment) -> None:
    """Whatever the disk tears or forgets, the next life begins with all that was acknowledged."""

    async def every_cut() -> int:
        for operation in range(1, 10_000):
            disk, acknowledged = SimDisk(random.Random(operation)), list[str]()
            disk.faults.crash_at_operation, disk.faults.crash_moment = operation, moment
            if not await until_power_fails(disk, acknowledged):
                return operation
            await check_recovered(disk.crash(), acknowledged)
        raise AssertionError("no life was long enough")

    assert asyncio.run(every_cut()) > 100


def test_cuts_of_power_met_snapshots_and_removals() -> None:
    """The life that is cut at every call does roll segments, make snapshots and remove what they cover."""
    disk, acknowledged = SimDisk(random.Random(1)), list[str]()
    asyncio.run(live(disk, acknowledged))
    assert acknowledged == WORDS
    names = disk.names()
    assert sum(name.endswith(".snap") for name in names) == 2
    assert not any(name.startswith(f"{1:020d}-") for name in names), "the first segment is covered twice"


FAULTS = ["fail_next_write", "fail_next_sync"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("before", range(0, len(WORDS), 3))
async def test_failure_of_the_journal_loses_nothing(fault: str, before: int) -> None:
    """After a write or a sync that failed nobody is answered, and the next life has all that was acknowledged."""
    disk, acknowledged, failures = SimDisk(random.Random(before)), list[str](), list[BaseException]()
    keeper = keeper_on(disk, Words(), failures=failures, compact_bytes=COMPACT_BYTES)
    for word in WORDS[:before]:
        acknowledged.append(await keeper.act(say(word)))
    setattr(disk.faults, fault, True)
    replies = await asyncio.gather(*(keeper.act(say(word)) for word in WORDS[before:]), return_exceptions=True)
    assert all(isinstance(reply, HoldfastError) for reply in replies)
    assert len(failures) == 1
    await keeper.close()
    await check_recovered(disk.crash(), acknowledged)


class FaultyAside(Here):
    """The disk fails once at each snapshot, and never at a frame."""

    def __init__(self, disk: SimDisk, fault: str) -> None:
        self._disk = disk
        self._fault = fault

    def run(self, work: Callable[[], int], done: Done, *, is_lone: bool) -> None:
        setattr(self._disk.faults, self._fault, True)
        super().run(work, done, is_lone=is_lone)
        assert not getattr(self._disk.faults, self._fault), "it has failed"


@pytest.mark.parametrize("fault", [*FAULTS, "fail_next_sync_dir"])
async def test_failure_of_a_snapshot_is_told_and_harms_nothing(fault: str) -> None:
    """The journal goes on, no segment is removed, and no snapshot is left that cannot be relied upon."""
    disk, acknowledged, failures = SimDisk(random.Random(1)), list[str](), list[BaseException]()
    aside = FaultyAside(disk, fault)
    keeper = keeper_on(disk, Words(), failures=failures, aside=aside, compact_bytes=COMPACT_BYTES)
    with capture_logs() as lines:
        for word in WORDS:
            acknowledged.append(await keeper.act(say(word)))
    assert any(line["event"] == "snapshot_failed" for line in lines)
    assert not failures
    assert not any(name.endswith(".snap") for name in disk.names())
    await check_recovered(disk.crash(), acknowledged)


async def test_segment_that_cannot_be_removed_ends_the_journal() -> None:
    """What the journal then holds is not known: that is as final as a failed sync."""

    class Stubborn(SimDisk):
        def remove(self, name: str) -> None:
            if name.endswith(".seg"):
                raise OSError(errno.EIO, "no")
            super().remove(name)

    disk, acknowledged, failures = Stubborn(random.Random(1)), list[str](), list[BaseException]()
    keeper = keeper_on(disk, Words(), failures=failures, compact_bytes=COMPACT_BYTES)
    for word in WORDS:
        with contextlib.suppress(HoldfastError):
            acknowledged.append(await keeper.act(say(word)))
    assert len(acknowledged) < len(WORDS)
    assert [type(error) for error in failures] == [JournalFailedError]
    await keeper.close()
    machine = Words()
    keeper_on(SimDisk(random.Random(2), disk.crash().files()), machine, compact_bytes=COMPACT_BYTES)
    assert machine.words[: len(acknowledged)] == acknowledged


async def test_snapshot_is_of_one_frame_while_others_go_on() -> None:
    """What is decided during the sync is not in it, a second one waits for the first, and both lives are equal."""
    disk, machine, sync, aside = SimDisk(random.Random(1)), Words(), Held(), Held()
    keeper = keeper_on(disk, machine, sync=sync, aside=aside, compact_bytes=COMPACT_BYTES)
    tasks = list[asyncio.Future[object]]()
    for word in WORDS:
        tasks.append(asyncio.ensure_future(keeper.act(say(word))))
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
    """A full disk keeps a snapshot from being made, which is no failure of the journal."""

    class FullAside(Here):
        is_full = True

        def run(self, work: Callable[[], int], done: Done, *, is_lone: bool) -> None:
            disk.faults.free_bytes = 0 if self.is_full else None
            super().run(work, done, is_lone=is_lone)
            disk.faults.free_bytes = None

    disk, machine, failures, aside = SimDisk(random.Random(1)), Words(), list[BaseException](), FullAside()
    keeper = keeper_on(disk, machine, failures=failures, aside=aside, compact_bytes=COMPACT_BYTES)
    with capture_logs() as lines:
        for word in WORDS:
            assert await keeper.act(say(word)) == word
    assert any(line["event"] == "snapshot_failed" for line in lines)
    assert not any(name.endswith(".snap") for name in disk.names())
    aside.is_full = False
    for word in WORDS:
        await keeper.act(say(word))
    assert any(name.endswith(".snap") for name in disk.names())
    assert not failures


async def test_damaged_snapshot_is_passed_over_aloud() -> None:
    """Damage to one snapshot costs time and a warning; the state is the same."""
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
    """With both snapshots damaged and the segments before them gone, nothing is served."""
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
    """A program that does other things with the same events does not serve."""

    class Forgetful(Words):
        def apply(self, event: str) -> None:
            super().apply(event.upper())

    disk = SimDisk(random.Random(1))
    keeper = keeper_on(disk, Words())
    await keeper.act(say("one"))
    await keeper.close()
    with pytest.raises(ReplayDivergedError):
        keeper_on(disk, Forgetful())
    again = Words()
    await keeper_on(disk, again).close()
    assert again.words == ["one"], "and nothing was changed by the attempt"


async def test_event_of_another_version_is_refused() -> None:
    """What this version cannot read is not skipped."""

    class Newer(Words):
        def encode(self, event: str) -> bytes:
            return b"\x07"

    disk = SimDisk(random.Random(1))
    keeper = keeper_on(disk, Newer())
    await keeper.act(say("one"))
    await keeper.close()
    with pytest.raises(UnreadableEventError, match="start the version that wrote them"):
        keeper_on(disk, Words())
