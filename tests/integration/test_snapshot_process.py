"""The process that makes snapshots, when it cannot be had."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from holdfast.journal.descriptors import DescriptorReserve
from holdfast.ledger.snapshot_process import SnapshotProcess, maker_command


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), RuntimeError("can't start new thread")])
async def test_maker_that_cannot_be_started_made_no_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The keeper is told, so that it tries again; the log says why."""

    async def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    made = asyncio.get_running_loop().create_future()
    with capture_logs() as lines:
        SnapshotProcess(asyncio.get_running_loop(), lambda: maker_command(str(tmp_path), 0), DescriptorReserve()).start(
            made.set_result
        )
        assert str(error) in await made
    assert [line["event"] for line in lines] == ["snapshot_failed"]
    assert str(error) in lines[0]["message"]
