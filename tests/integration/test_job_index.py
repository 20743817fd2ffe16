"""Indexes that a separate process builds while a ledger serves."""

import asyncio
from pathlib import Path

from holdfast.core.history import Entry
from holdfast.core.model import Template
from holdfast.journal.descriptors import DescriptorReserve
from holdfast.journal.index import index_name
from holdfast.journal.os_disk import OsDisk
from holdfast.ledger.snapshot_process import index_command
from holdfast.ports import JobDraft
from holdfast.process.helper_process import HelperProcess
from holdfast.settings import Settings
from holdfast.topologies.embedded.served_ledger import ServedLedger
from tests.e2e.wait_until import eventually

SEGMENT_BYTES = 1 << 20


def _settings(data: Path) -> Settings:
    return Settings(data=str(data), segment_bytes=SEGMENT_BYTES)


async def _submit(serving: ServedLedger, count: int) -> list[str]:
    draft = JobDraft(payload=bytes(200_000))
    return [(await serving.ports.jobs.submit([Template("t")], [draft])).job_ids[0] for _ in range(count)]


async def _history(serving: ServedLedger, job_id: str) -> list[Entry]:
    return await serving.core.feed.history(job_id)


async def test_sealed_segments_get_indexes_beside_a_server_that_serves(tmp_path: Path) -> None:
    """Histories are complete before and after segments are indexed, and after a restart without the indexes."""
    serving = ServedLedger(_settings(tmp_path / "data"))
    await serving.open()
    ids = await _submit(serving, 30)
    first = await _history(serving, ids[0])
    assert [entry.what for entry in first] == ["submitted"]
    disk = OsDisk(tmp_path / "data")
    await asyncio.to_thread(eventually, lambda: any(name.endswith(".idx") for name in disk.names()))
    assert await _history(serving, ids[0]) == first
    assert [entry.what for entry in await _history(serving, ids[-1])] == ["submitted"]
    await serving.close()
    for name in disk.names():
        if name.endswith(".idx"):
            disk.remove(name)
    again = ServedLedger(_settings(tmp_path / "data"))
    await again.open()
    assert await _history(again, ids[0]) == first
    await again.close()


async def test_process_indexes_every_sealed_segment(tmp_path: Path) -> None:
    """The index process indexes every sealed segment, and succeeds if none is missing."""
    serving = ServedLedger(_settings(tmp_path))
    await serving.open()
    await _submit(serving, 12)
    sealed = [info.name for info in serving.core.journal.segments() if info.is_sealed]
    assert sealed
    for _ in range(2):
        made = asyncio.get_running_loop().create_future()
        process = HelperProcess(asyncio.get_running_loop(), lambda: index_command(str(tmp_path)), DescriptorReserve())
        process.start(made.set_result)
        assert await made == ""
        await process.ended()
        assert {index_name(name) for name in sealed} <= set(OsDisk(tmp_path).names())
    await serving.close()
