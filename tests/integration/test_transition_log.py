"""The log levels of the ledger's events."""

import asyncio
import json
from io import BytesIO

import pytest
from structlog.testing import capture_logs

from holdfast.core.commands import ReportRow
from holdfast.core.ledger import Ledger
from holdfast.core.lifecycle import DONE
from holdfast.core.model import Now, Template
from holdfast.ledger.coordinator import BROKEN, CommandLane
from holdfast.ports import JobDraft
from tests.integration.conftest import Start


@pytest.mark.parametrize("level", ["info", "error"])
async def test_bug_is_logged_at_every_level(start: Start, level: str) -> None:
    """A bug is logged with its traceback at every log level."""
    server = await start(log_level=level)
    answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def broken(_ledger: Ledger, _now: Now) -> object:
        raise RuntimeError("a mistake")

    with capture_logs() as lines:
        server.coordinator.read(CommandLane.SUBMIT, broken, answer.set_result)
        assert await answer == BROKEN
    assert [str(line["exc_info"]) for line in lines if line["event"] == "bug"] == ["a mistake"]


@pytest.mark.parametrize(
    ("level", "events"),
    [("info", ["transition", "report_refused"]), ("warning", ["report_refused"]), ("error", [])],
)
async def test_lines_below_the_level_are_left_out(start: Start, level: str, events: list[str]) -> None:
    """State changes are logged at the level info, and refused reports at the level warning."""
    server = await start(log_level=level, log_format="json")
    (job_id,) = (await server.jobs.submit([Template("t")], [JobDraft()])).job_ids
    assert await server.work.report("nobody", [ReportRow(job_id, 7, DONE)]) == ["STALE_TOKEN"]
    await server.stop()
    stream = server._log_stream
    assert isinstance(stream, BytesIO)
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == events
