"""A server whose jobs fill its memory: it refuses new jobs, continues otherwise, and recovers."""

from typing import cast

import pytest

from holdfast import limits
from holdfast.core import commands
from holdfast.core.lifecycle import DONE, State
from holdfast.core.model import Extra, Template
from holdfast.errors import ResourceExhaustedError
from holdfast.ledger.coordinator import CommandLane
from holdfast.ledger.coordinator_calls import CoordinatorCaller
from holdfast.ports import JobDraft
from tests.integration.conftest import Start
from tests.integration.http_client import get

LABELS = tuple((f"label-{number}", "x" * 500) for number in range(20))


async def test_labels_fill_the_memory_and_work_goes_on(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the memory limit, jobs with labels and no payload are refused, while grants, reports and cancels succeed."""
    monkeypatch.setattr(limits, "RESIDENT_SLACK_BYTES", 1 << 40)  # this process has already run other tests
    server = await start(no_http=False, http_port=0, memory_bytes=200_000, retain_bytes=0)
    drafts, template = [JobDraft(extra=Extra(labels=LABELS))], Template("t")
    ids: list[str] = []
    while (await server.admin.stats()).bytes_held <= 200_000:
        ids += (await server.jobs.submit([template], drafts)).job_ids
    with pytest.raises(ResourceExhaustedError) as refused:
        await server.jobs.submit([template], drafts)
    stats = await server.admin.stats()
    assert refused.value.reason == "TOO_MANY_BYTES"
    assert f"{stats.bytes_held:,}" in refused.value.message
    assert stats.bytes_held_max == 200_000 < stats.bytes_held < 220_000
    assert "new jobs are refused" in stats.warnings[0]
    assert (await get(server.http_address, "/readyz")).body == b"ready\nwarning: new jobs are refused\n"
    page = (await get(server.http_address, "/metrics")).body.decode()
    assert f"holdfast_held_bytes {float(stats.bytes_held)}" in page
    assert "holdfast_held_bytes_limit 200000.0" in page
    assert (await server.jobs.cancel(ids[0], "no room")).state == State.CANCELED
    caller = CoordinatorCaller(server.coordinator)
    lease = commands.GrantLeases("w", frozenset({"t"}), frozenset(), 1, 30_000)
    (work,) = cast("list[commands.GrantedLease]", await caller.call(CommandLane.WORK, lease))
    report = commands.Report("w", [commands.ReportRow(work.job_id, work.token, DONE)])
    assert await caller.call(CommandLane.WORK, report) == commands.ReportReply([""])
    assert (await server.jobs.submit([template], drafts)).job_ids[0]
    assert (await server.admin.stats()).bytes_held < 200_000


async def test_held_bytes_are_the_same_after_a_restart(start: Start) -> None:
    """A restarted server computes the same number of held bytes from its journal."""
    server = await start()
    await server.jobs.submit([Template("t")], [JobDraft(payload=b"p", extra=Extra(request_id="r", labels=LABELS))])
    canceled = await server.jobs.submit([Template("t")], [JobDraft(extra=Extra(headers=(("h", "ü"),)))])
    await server.jobs.cancel(canceled.job_ids[0], "why")
    before = (await server.admin.stats()).bytes_held
    await server.stop()
    assert (await (await start()).admin.stats()).bytes_held == before > 20 * 500
