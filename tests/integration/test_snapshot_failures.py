"""Snapshots that fail, as operators see them."""

import asyncio
from pathlib import Path

import pytest

from holdfast.cli.health import Finding, findings
from holdfast.cli.top_numbers import TopSample, Trend
from holdfast.core.model import Template
from holdfast.journal.errors import JournalDamagedError
from holdfast.ports import JobDraft
from tests.integration.conftest import Start
from tests.integration.http_client import get


def damage(segment: Path) -> None:
    """Changes one byte of a frame."""
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)


async def test_failing_snapshots_are_shown_and_the_server_stays_ready(start: Start, tmp_path: Path) -> None:
    """A failed snapshot is in the metrics, /readyz, the numbers and `holdfast top`, and the server accepts jobs."""
    server = await start(no_http=False, http_port=0, segment_bytes=65_536, snapshot_bytes=200_000)
    draft = JobDraft(payload=bytes(8_192))
    damaged = None
    async with asyncio.timeout(60):
        while not (warnings := (await server.admin.stats()).warnings):
            await server.jobs.submit([Template("sim")], [draft])
            segments = sorted((tmp_path / "data").glob("*.seg"))
            if damaged is None and len(segments) > 1:
                damaged = segments[0]
                damage(damaged)
    assert len(warnings) == 1
    assert damaged is not None
    assert warnings[0].startswith(
        "the journal grows, because making a snapshot failed once: do not restart the server, its next start would be"
        f" refused: {damaged.name!r} is damaged at offset "
    )
    assert not warnings[0].endswith(".")
    ready = await get(server.http_address, "/readyz")
    warning = "warning: the journal grows, because making a snapshot failed once"
    assert (ready.status, ready.body.decode()) == (200, f"ready\n{warning}\n")
    page = (await get(server.http_address, "/metrics")).body.decode()
    assert 'holdfast_snapshots_total{outcome="failed"} 1.0' in page
    assert "holdfast_snapshot_failures_in_a_row 1.0" in page
    told = (await get(server.http_address, "/api/v1/stats")).json
    assert told["warnings"] == list(warnings)
    look = TopSample(await server.admin.stats(), await server.admin.queues(), await server.admin.workers(), [])
    trend = Trend()
    trend.add(look.stats)
    assert findings(look, trend)[0] == Finding(is_bad=True, text=warnings[0])
    await server.stop()
    with pytest.raises(JournalDamagedError):
        await start()
