"""The state changes that the pipeline's store logs."""

import json
from collections.abc import AsyncIterator
from io import BytesIO

import psycopg
import pytest

from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import CANCELED, DONE, FAILED, NOWHERE, QUEUED, RUNNING
from holdfast.core.model import FIXED, BackoffRule, Extra, ScheduleSpec, Template
from holdfast.core.state_change import StateChange
from holdfast.observe.log_setup import JsonLines
from holdfast.observe.transitions import transition_lines
from holdfast.ports import JobDraft
from holdfast.topologies.pipeline.backend.store import QueueAssignment, WorkerKind
from holdfast.topologies.pipeline.postgres.database import PostgresStore
from tests.integration.pipeline.long_timeouts import open_patiently
from tests.integration.pipeline.store_work import insert, report, running, start

#: A job, its state before and after, the attempt, the worker and the reason.
Move = tuple[str, int, int, int, str, str]


class Logged:
    """A store and its logged state changes."""

    def __init__(self) -> None:
        self.store: PostgresStore
        self.changes: list[StateChange] = []

    @property
    def moves(self) -> list[Move]:
        return [
            (job_id, one.old, one.new, one.attempt, one.worker, one.reason)
            for one in self.changes
            for job_id in one.job_ids
        ]


@pytest.fixture
async def logged(database: str) -> AsyncIterator[Logged]:
    """A store over an empty database, with a log."""
    logged = Logged()
    async with await open_patiently(database, log=logged.changes.extend) as store:
        logged.store = store
        yield logged


async def test_successful_job_is_logged_from_submit_to_end(logged: Logged) -> None:
    """A successful job is logged with three changes, each with the database's time and the job's priority."""
    run = await running(logged.store, Template("echo", priority=7))
    assert await report(logged.store, run) == ""
    assert logged.moves == [
        (run.job_id, NOWHERE, QUEUED, 0, "", ""),
        (run.job_id, QUEUED, RUNNING, 1, "w", ""),
        (run.job_id, RUNNING, DONE, 1, "w", ""),
    ]
    view = await logged.store.rows.get(run.job_id)
    assert [one.at_ms for one in logged.changes] == [view.created_ms, view.started_ms, view.finished_ms]
    assert {one.priority for one in logged.changes} == {7}


async def test_jobs_that_change_alike_are_logged_together(logged: Logged) -> None:
    """A batch is logged as one record per priority, and a repeated batch is not logged."""
    templates = [Template("echo"), Template("echo", priority=1)]
    drafts = [JobDraft(at % 2, extra=Extra(request_id=str(at))) for at in range(10)]
    ids = (await logged.store.rows.insert(templates, drafts)).job_ids
    assert [(one.priority, one.job_ids) for one in logged.changes] == [(5, ids[::2]), (1, ids[1::2])]
    logged.changes.clear()
    await logged.store.rows.insert(templates, drafts)
    assert logged.changes == []


async def test_failures_and_losses_are_logged_with_their_reasons(logged: Logged) -> None:
    """Failures and losses are logged with the attempt that ended and its reason."""
    store = logged.store
    run = await running(store, Template("echo", max_attempts=3, max_losses=1, backoff=BackoffRule(FIXED, 0, 0)))
    await report(store, run, FAILED, failure_reason="broken")
    run = await start(store, run.job_id)
    await store.leases.release("w", [run.token], is_spent=True)
    run = await start(store, run.job_id, lease_ms=0)
    await store.claims.expire(10)
    assert [move[1:] for move in logged.moves[2:]] == [
        (RUNNING, QUEUED, 1, "w", "broken"),
        (QUEUED, RUNNING, 2, "w", ""),
        (RUNNING, QUEUED, 2, "w", "disconnected, a loss"),
        (QUEUED, RUNNING, 3, "w", ""),
        (RUNNING, FAILED, 3, "w", "expired, a loss"),
    ]


async def test_coordinator_logs_the_leases_of_a_lost_worker(logged: Logged) -> None:
    """Leases that the coordinator takes back from a lost worker are logged."""
    store = logged.store
    await store.workers.save([QueueAssignment("w", "s", WorkerKind(("echo",)), 1, ())])
    run = await running(store)
    assert await store.workers.lose("w", "s", 0)
    assert logged.moves[-1] == (run.job_id, RUNNING, QUEUED, 1, "w", "disconnected, a loss")


async def test_cancels_are_logged(logged: Logged) -> None:
    """A cancel is logged once, as a change for a waiting job and as a request for a running one."""
    store = logged.store
    waiting, run = await insert(store), await running(store)
    for _ in range(2):
        for job_id in (waiting, run.job_id):
            await store.rows.cancel(job_id, "enough")
    await report(store, run, CANCELED)
    assert logged.moves[3:] == [
        (waiting, QUEUED, CANCELED, 0, "", "enough"),
        (run.job_id, RUNNING, RUNNING, 1, "w", "enough"),
        (run.job_id, RUNNING, CANCELED, 1, "w", ""),
    ]


async def test_purges_and_schedules_are_logged(logged: Logged) -> None:
    """Jobs that a purge ends and that a schedule creates are logged."""
    store = logged.store
    await store.schedules.set(ScheduleSpec("s", Template("echo"), every_ms=3_600_000))
    job_id = await store.schedules.trigger("s")
    assert await store.queues.purge("default", "cleaned") == 1
    assert logged.moves == [
        (job_id, NOWHERE, QUEUED, 0, "", ""),
        (job_id, QUEUED, CANCELED, 0, "", "cleaned"),
    ]


async def test_repeated_transaction_is_logged_once(logged: Logged, database: str) -> None:
    """A transaction that is rolled back and repeated is logged once."""
    store = logged.store
    run = await running(store)
    logged.changes.clear()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            """
            CREATE SEQUENCE tries;
            CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                IF nextval('tries') = 1 THEN RAISE EXCEPTION 'once' USING ERRCODE = 'deadlock_detected'; END IF;
                RETURN NULL;
            END $$;
            CREATE CONSTRAINT TRIGGER fail_once AFTER INSERT ON holdfast.failed
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail_once();
            """
        )
    row = ReportRow(run.job_id, run.token, FAILED, is_retryable=False)
    assert await store.leases.report("w", [row]) == [""]
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT last_value FROM tries").fetchone() == (2,)
    assert logged.moves == [(run.job_id, RUNNING, FAILED, 1, "w", "")]


def test_lines_have_the_fields_of_every_topology() -> None:
    """The log has one line per job, and above the level of transitions there is no log function."""
    stream = BytesIO()
    write = transition_lines(JsonLines(stream), "worker", "info")
    assert write is not None
    write(
        [StateChange(7, ["a", "b"], QUEUED, RUNNING, 2, 5, "w", "why"), StateChange(8, ["a"], RUNNING, RUNNING, 2, 5)]
    )
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["event"], line["job_id"]) for line in lines] == [
        ("transition", "a"),
        ("transition", "b"),
        ("cancel_requested", "a"),
    ]
    names = ("ts_ms", "service", "old_state", "new_state", "worker_id", "attempt", "priority", "reason")
    assert [lines[0][name] for name in names] == [7, "worker", "QUEUED", "RUNNING", "w", 2, 5, "why"]
    assert transition_lines(JsonLines(stream), "worker", "warning") is None
