"""A snapshot process that cannot be started."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from holdfast.journal.descriptors import DescriptorReserve
from holdfast.ledger.snapshot_process import maker_command
from holdfast.process.helper_process import HelperProcess


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), RuntimeError("can't start new thread")])
async def test_maker_that_cannot_be_started_made_no_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A snapshot process that cannot be started reports its error to the keeper and logs it."""

    async def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    made = asyncio.get_running_loop().create_future()
    with capture_logs() as lines:
        HelperProcess(asyncio.get_running_loop(), lambda: maker_command(str(tmp_path), 0), DescriptorReserve()).start(
            made.set_result
        )
        assert str(error) in await made
    assert [line["event"] for line in lines] == ["snapshot_failed"]
    assert str(error) in lines[0]["message"]
