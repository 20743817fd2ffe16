"""The process that makes snapshots of an owner's directory."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.core.commands import Refusal
from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.model import NewJob, Template
from holdfast.topologies.microservices.services.owner import Keeper, OwnerDecision
from holdfast.topologies.microservices.snapshot_process import OwnerSnapshotProcess
from holdfast.topologies.microservices.state.record_events import Decided
from holdfast.topologies.microservices.state.records import Records


def opened(directory: Path, machine: Records) -> Keeper:
    """A keeper whose snapshots another process makes."""

    def never(error: BaseException) -> None:
        raise error

    return Keeper.open(
        machine,
        directory,
        digest_version=DIGEST_VERSION,
        clock=SystemClock(),
        loop=asyncio.get_running_loop(),
        fatal=never,
        compact_bytes=16_384,
        maker=OwnerSnapshotProcess(directory),
    )


async def fill(keeper: Keeper, machine: Records, count: int) -> None:
    """Makes so many records."""
    start = len(machine.book.jobs)

    def create(number: int, now_ms: int) -> OwnerDecision | Refusal:
        decided = machine.create(Template("t"), NewJob(f"j{number}", 0, bytes(200)), now_ms, is_id_given=False)
        return OwnerDecision(decided.event, decided.reply) if isinstance(decided, Decided) else decided

    for number in range(start, start + count):
        await keeper.act(partial(create, number))


async def test_snapshots_of_another_process_restore_the_same_records(tmp_path: Path) -> None:
    """They come, segments that they cover go, and the next life has the same state from them."""
    directory, machine = tmp_path / "job", Records()
    directory.mkdir()
    keeper = opened(directory, machine)
    first = min(directory.glob("*.seg"))
    async with asyncio.timeout(60):
        while first.exists():
            await fill(keeper, machine, 50)
    await keeper.close()
    assert len(list(directory.glob("*.snap"))) == 2
    again = Records()
    keeper = opened(directory, again)
    assert (again.digest, again.book.bytes_held) == (machine.digest, machine.book.bytes_held)
    assert list(again.image()) == list(machine.image())
    await keeper.close()


def test_maker_that_fails_says_why(tmp_path: Path) -> None:
    """The last line that it printed is the error."""
    directory = tmp_path / "job"
    directory.mkdir()
    (directory / f"{1:020d}-{1:010d}.seg").write_bytes(b"nothing")
    (directory / f"{9:020d}-{1:010d}.seg").write_bytes(b"nothing")
    with pytest.raises(OSError, match="damaged"):
        OwnerSnapshotProcess(directory).make()


def test_maker_that_was_stopped_makes_nothing(tmp_path: Path) -> None:
    """A stop before or during a snapshot ends it."""
    directory = tmp_path / "job"
    directory.mkdir()
    maker = OwnerSnapshotProcess(directory)
    maker.stop()
    with pytest.raises(OSError, match="status -9"):
        maker.make()
