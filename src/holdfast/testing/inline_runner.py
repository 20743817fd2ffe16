"""Runs jobs on the test's own thread, one after another, until no job is due."""

import asyncio
import contextvars
import inspect
import time
from collections.abc import Awaitable

from holdfast.app import Holdfast
from holdfast.core import commands
from holdfast.core.commands import GrantedLease, ReportRow
from holdfast.errors import FailedPreconditionError
from holdfast.ledger.coordinator import CommandLane
from holdfast.ledger.session_messages import assignment
from holdfast.ports import Assignment
from holdfast.sdk.connection import AppConnection
from holdfast.testing.clock import memory_of
from holdfast.worker.context import CURRENT, JobContext
from holdfast.worker.handlers import Handler
from holdfast.worker.outcomes import failed, succeeded

_WORKER = "run-jobs"


def run_jobs(app: Holdfast, *, attempts_max: int = 10_000) -> int:
    """Runs all jobs that are due, and those that they submit in turn; returns the number of attempts.

    Handlers run on this thread, whatever their isolation, and without a timeout. `FailedPreconditionError` after
    `attempts_max` attempts: jobs that submit jobs might never end.
    """
    connection = app.connection
    handlers = app.handlers()
    worker = _RunningJobs()
    connection.workers.add(worker)
    try:
        return _run_due(connection, handlers, attempts_max)
    finally:
        connection.workers.discard(worker)


class _RunningJobs:
    """Stands for a running `run_jobs` among the workers, so that `result()` in another thread waits for it."""


def _run_due(connection: AppConnection, handlers: dict[str, Handler], attempts_max: int) -> int:
    for count in range(attempts_max + 1):
        lease = connection.portal().run(lambda: _fetch(connection, frozenset(handlers)))
        if lease is None:
            return count
        context, row = contextvars.copy_context().run(_attempt, assignment(lease), handlers[lease.template.route])
        connection.portal().run(lambda context=context, row=row: _report(connection, context, row))  # type: ignore[misc] # mypy cannot infer the default
    raise FailedPreconditionError(
        f"jobs are still due after {attempts_max} attempts; look for jobs that submit jobs for ever, or increase"
        " attempts_max",
        reason="TOO_MANY_ATTEMPTS",
    )


async def arun_jobs(app: Holdfast, *, attempts_max: int = 10_000) -> int:
    """Async version of `run_jobs`, which does not block the test's event loop; coroutines run on a separate loop."""
    return await asyncio.to_thread(run_jobs, app, attempts_max=attempts_max)


async def _fetch(connection: AppConnection, routes: frozenset[str]) -> GrantedLease | None:
    return await memory_of(connection).core.work.fetch(_WORKER, routes)


def _attempt(lease: Assignment, handler: Handler) -> tuple[JobContext, ReportRow]:
    context = JobContext(lease, handler, time.monotonic(), lambda _: None)
    context.started_s = time.monotonic()
    CURRENT.set(context)
    try:
        output = handler.run(lease)
        if inspect.isawaitable(output):
            output = asyncio.run(_awaited(output))
        return context, succeeded(context, output)
    except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001 - KeyboardInterrupt ends the test
        return context, failed(context, error)


async def _awaited(output: Awaitable[bytes]) -> bytes:
    return await output


async def _report(connection: AppConnection, context: JobContext, row: ReportRow) -> None:
    core = memory_of(connection).core
    note = context.take_note()
    if note is not None:
        core.coordinator.call(CommandLane.WORK, commands.TakeNotes(_WORKER, [note]), lambda _: None)
    refused = await core.work.report(_WORKER, [row])
    assert refused == [""], f"the coordinator refused an outcome: {refused}"
