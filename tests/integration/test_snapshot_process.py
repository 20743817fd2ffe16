"""The process that makes snapshots, when it cannot be had."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from holdfast.topology.snapshot_process import SnapshotProcess


async def test_maker_that_cannot_be_started_made_no_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keeper is told, so that it tries again; the log says why."""

    async def refuse(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    made = asyncio.get_running_loop().create_future()
    with capture_logs() as lines:
        SnapshotProcess(asyncio.get_running_loop(), str(tmp_path)).start(made.set_result)
        assert await made is False
    assert [line["event"] for line in lines] == ["snapshot_failed"]
    assert "Too many open files" in lines[0]["message"]
