"""The log of ended attempts, in a Holdfast program and in a program that embeds a worker."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from holdfast.core.lifecycle import CANCELED, DONE
from holdfast.observe.log_setup import configure
from holdfast.ports import Assignment, Directive
from holdfast.worker.handlers import AttemptFailedError, Handler, Mode
from tests.unit.worker.backend import working

PAYLOAD = b"secret payload"


@pytest.fixture(autouse=True)
def _fresh_structlog() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def succeed(_: Assignment) -> bytes:
    return b"secret output"


def fail(_: Assignment) -> bytes:
    raise ValueError("no \x1b[2J good")


def refuse(_: Assignment) -> bytes:
    raise AttemptFailedError("NO_MONEY", is_retryable=False)


async def for_ever(_: Assignment) -> bytes:
    await asyncio.Event().wait()
    return b""


HANDLERS = {
    "succeed": Handler(succeed, Mode.THREAD),
    "fail": Handler(fail, Mode.THREAD),
    "refuse": Handler(refuse, Mode.THREAD),
    "for_ever": Handler(for_ever, Mode.ASYNC),
}


async def run(*leases: Assignment, cancels: tuple[int, ...] = ()) -> None:
    """Runs attempts to their ends, then stops the worker."""
    async with working(HANDLERS) as (_, backend):
        _, session = await backend.opened.get()
        session.tell(Directive(leases=list(leases)))
        session.tell(Directive(cancels=list(cancels)))
        for _ in leases:
            await session.rows.get()


async def logged(*leases: Assignment, level: str = "info", cancels: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    """Runs attempts in a Holdfast program, and returns its log lines about them."""
    stream = io.BytesIO()
    configure(service="worker", level=level, log_format="json", stream=stream)
    await run(*leases, cancels=cancels)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [line for line in lines if "outcome" in line]


def lease(kind: str, *, retries_left: int = 0) -> Assignment:
    return Assignment(7, "job", kind, PAYLOAD, 2, retries_left=retries_left)


async def test_finished_job_is_one_line_at_info() -> None:
    """The line has job, type, attempt, outcome and runtime in the usual order, and neither payload nor output."""
    (line,) = await logged(lease("succeed"))
    assert list(line)[:7] == ["ts_ms", "level", "service", "method", "event", "job_id", "worker_id"]
    assert (line["level"], line["service"], line["event"]) == ("info", "worker", "job_finished")
    assert (line["job_id"], line["worker_id"], line["type"], line["attempt"]) == ("job", "w", "succeed", 2)
    assert line["outcome"] == DONE.name
    assert isinstance(line["runtime_ms"], int)
    assert "secret" not in json.dumps(line)


async def test_canceled_job_is_one_line_at_info() -> None:
    """A canceled job is logged as finished, not as failed."""
    (line,) = await logged(lease("for_ever"), cancels=(7,))
    assert (line["level"], line["event"], line["outcome"]) == ("info", "job_finished", CANCELED.name)


async def test_failure_that_is_retried_is_a_warning_with_its_traceback() -> None:
    """The warning shows where the job's code failed."""
    (line,) = await logged(lease("fail", retries_left=1), level="warning")
    assert (line["level"], line["event"], line["outcome"]) == ("warning", "attempt_failed", "FAILED")
    assert line["message"] == "ValueError: no \x1b[2J good"
    assert line["exception"].startswith("Traceback (most recent call last):\n")
    assert 'test_attempt_log.py", line ' in line["exception"]
    assert "secret" not in json.dumps(line)


@pytest.mark.parametrize("kind", ["fail", "refuse"])
async def test_failure_that_ends_the_job_is_an_error(kind: str) -> None:
    """A failure is logged as an error if no attempt is left or if it is not retryable."""
    (line,) = await logged(lease(kind, retries_left=int(kind == "refuse")), level="error")
    assert (line["level"], line["event"], line["attempt"]) == ("error", "job_failed", 2)


async def test_success_is_not_logged_above_info() -> None:
    """A success is not logged at the level warning."""
    assert await logged(lease("succeed"), level="warning") == []


async def test_terminal_shows_a_traceback_as_lines() -> None:
    """A traceback is a block below its line, with control characters escaped."""
    stream = io.BytesIO()
    configure(service="worker", log_format="text", stream=stream)
    await run(lease("fail"))
    text = stream.getvalue().decode()
    assert "\n    Traceback (most recent call last):\n" in text
    assert "\n    ValueError: no \\x1b[2J good\n" in text
    assert "\x1b" not in text


async def test_embedded_worker_logs_to_the_standard_logger(caplog: pytest.LogCaptureFixture) -> None:
    """In an embedding program the lines are records of the logger `holdfast`, with a readable traceback."""
    caplog.set_level(logging.INFO, "holdfast")
    await run(lease("fail"), Assignment(8, "other", "succeed", PAYLOAD))
    records = {record.levelname: record.getMessage() for record in caplog.records if "outcome" in record.getMessage()}
    assert "job_id='other'" in records["INFO"]
    assert "event='job_failed'" in records["ERROR"]
    assert "\nTraceback (most recent call last):\n" in records["ERROR"]
    assert "\x1b" not in records["ERROR"]


async def test_embedded_worker_says_nothing_of_successes_by_default(caplog: pytest.LogCaptureFixture) -> None:
    """At the default level of an embedding program, a success is not logged."""
    caplog.set_level(logging.WARNING, "holdfast")
    await run(lease("succeed"))
    assert caplog.records == []
