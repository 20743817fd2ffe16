"""Jobs as rows: what is accepted, found again, refused, seen and canceled."""

from holdfast.backends.pipeline.postgres.database import PostgresStore
from holdfast.backends.pipeline.store import Kind
from holdfast.backends.ports import JobDraft, JobQuery
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import DONE, QUEUED, RUNNING
from holdfast.core.model import Extra, Template

ECHO = Template("echo")
ALL = [Kind(("echo",))]


async def test_job_runs_through_the_rows(store: PostgresStore) -> None:
    """A job is inserted, claimed, started, reported and seen as done, with its result."""
    made = await store.rows.insert([ECHO], [JobDraft(payload=b"a\0b", extra=Extra(labels=(("k", "v\0"),)))])
    (job_id,) = made.job_ids
    assert (await store.rows.get(job_id)).state == QUEUED
    (ticket,) = await store.claims.claim(10, 60_000, ALL, [])
    assert (ticket.job_id, ticket.route, ticket.deliveries) == (job_id, "echo", 1)
    assert await store.claims.claim(10, 60_000, ALL, []) == []
    (run,) = await store.runs.start("w", [job_id], 30_000)
    assert (run.job_id, run.payload, run.attempt, run.labels) == (job_id, b"a\0b", 1, {"k": "v\0"})
    assert await store.runs.start("w", [job_id], 30_000) == []
    view = await store.rows.get(job_id)
    assert (view.state, view.worker, view.token, view.attempts) == (RUNNING, "w", run.token, 1)
    row = ReportRow(job_id, run.token, DONE, b"out", "sum\0mary", runtime_ms=7)
    assert await store.runs.report("w", [row]) == [""]
    assert await store.runs.report("w", [row]) == [""]
    result = await store.rows.result(job_id)
    assert (result.state, result.output, result.summary, result.runtime_ms) == (DONE, b"out", "sum\ufffdmary", 7)
    assert await store.queue_book.states() == {1: 0, 2: 0, 3: 1, 4: 0, 5: 0}
    found = await store.rows.find(JobQuery(labels={"k": "v\0"}), "", 10)
    assert [view.id for view in found.jobs] == [job_id]
    assert await store.rows.versions([job_id, "x"]) == {job_id: 3}
