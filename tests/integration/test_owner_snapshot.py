"""The process that makes snapshots of an owner's directory."""

import asyncio
from functools import partial
from pathlib import Path

import msgspec
from structlog.testing import capture_logs

from holdfast.clock import SystemClock
from holdfast.core.commands import Refusal
from holdfast.core.model import NewJob, Template
from holdfast.journal.descriptors import DescriptorReserve
from holdfast.process.helper_process import HelperProcess
from holdfast.topologies.microservices.services.owner import SNAPSHOTS, OwnerDecision, StateOwner
from holdfast.topologies.microservices.snapshot_process import snapshot_command
from holdfast.topologies.microservices.state.record_events import RecordDecision
from holdfast.topologies.microservices.state.records import Records


def opened(directory: Path, machine: Records) -> StateOwner:
    """Opens a keeper whose snapshots another process makes."""

    def never(error: BaseException) -> None:
        raise error

    return StateOwner.open(
        machine,
        directory,
        clock=SystemClock(),
        loop=asyncio.get_running_loop(),
        fatal=never,
        snapshots=msgspec.structs.replace(SNAPSHOTS, snapshot_bytes=16_384, look_ms=0),
        command=snapshot_command(directory),
    )


async def fill(state_owner: StateOwner, machine: Records, count: int) -> None:
    """Makes `count` records."""
    start = len(machine.state.jobs)

    def create(number: int, now_ms: int) -> OwnerDecision | Refusal:
        decided = machine.create(Template("t"), NewJob(f"j{number}", 0, bytes(200)), now_ms, is_id_given=False)
        return OwnerDecision(decided.event, decided.reply) if isinstance(decided, RecordDecision) else decided

    for number in range(start, start + count):
        await state_owner.act(partial(create, number))


async def test_snapshots_of_another_process_restore_the_same_records(tmp_path: Path) -> None:
    """Another process makes snapshots, the covered segments are removed, and a restart restores the same state."""
    directory, machine = tmp_path / "job", Records()
    directory.mkdir()
    state_owner = opened(directory, machine)
    first = min(directory.glob("*.seg"))
    async with asyncio.timeout(60):
        while first.exists():
            await fill(state_owner, machine, 50)
    await state_owner.close()
    assert len(list(directory.glob("*.snap"))) == 2
    again = Records()
    state_owner = opened(directory, again)
    assert (again.digest, again.state.bytes_held) == (machine.digest, machine.state.bytes_held)
    assert list(again.image()) == list(machine.image())
    await state_owner.close()


async def problem_of(helper: HelperProcess) -> str:
    """Runs the helper, and returns the reason of its failure."""
    made = asyncio.get_running_loop().create_future()
    helper.start(made.set_result)
    return str(await made)


async def test_maker_that_fails_says_why(tmp_path: Path) -> None:
    """The error of a failed snapshot process is the last line that it printed."""
    directory = tmp_path / "job"
    directory.mkdir()
    (directory / f"{1:020d}-{1:010d}.seg").write_bytes(b"nothing")
    (directory / f"{9:020d}-{1:010d}.seg").write_bytes(b"nothing")
    helper = HelperProcess(asyncio.get_running_loop(), lambda: snapshot_command(directory), DescriptorReserve())
    with capture_logs() as lines:
        assert "damaged" in await problem_of(helper)
    assert [line["event"] for line in lines] == ["snapshot_failed"]


async def test_maker_that_was_stopped_makes_nothing(tmp_path: Path) -> None:
    """A stop before or during a snapshot kills the helper, and no result is reported."""
    results: list[str] = []
    helper = HelperProcess(asyncio.get_running_loop(), lambda: snapshot_command(tmp_path / "job"), DescriptorReserve())
    helper.stop()
    helper.start(results.append)
    await helper.ended()
    assert results == []
