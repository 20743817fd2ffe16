"""The log of ended attempts: one line each at info level; a failure at warning or error level with its traceback.

A worker ends tens of thousands of jobs per second. So the level is checked once for all attempts that end together, and
the Holdfast programs collect their lines for a moment and write them together. Payloads are never logged.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.core.commands import ReportRow
from holdfast.core.failure import traceback_of
from holdfast.core.lifecycle import FAILED, name
from holdfast.core.outcomes import failure_text
from holdfast.observe.logs import get_lines, is_on
from holdfast.worker.context import JobContext
from holdfast.worker.executors.port import Ended

#: Time for which lines are collected before they are written together.
_COLLECT_S = 0.05
#: This many collected lines are written without waiting for that time.
_LINES_MAX = 1_000


class FinishedLine(msgspec.Struct, frozen=True, gc=False):
    """The log line of an attempt that did not fail."""

    ts_ms: int
    level: str
    service: str
    method: str
    event: str
    job_id: str
    worker_id: str
    message: str
    type: str
    attempt: int
    outcome: str
    runtime_ms: int


class AttemptLog:
    """Logs the attempts of one worker."""

    def __init__(self, log: Any, worker_id: str) -> None:  # noqa: ANN401 - from `get_logger`, bound to the worker
        self._log = log
        self._worker_id = worker_id
        self._lines = get_lines()
        self._due: list[FinishedLine] = []

    def ended(self, ended: Sequence[Ended]) -> None:
        """Logs attempts that ended together."""
        is_info, now_ms = is_on(self._log, logging.INFO), time.time_ns() // 1_000_000
        for context, row in ended:
            if row.state == FAILED:
                self._failed(context, row)
            elif is_info:
                self._finished(context, row, now_ms)

    def flush(self) -> None:
        """Writes the collected lines."""
        due, self._due = self._due, []
        if due and self._lines is not None:
            self._lines.lines.write(due)

    def _failed(self, context: JobContext, row: ReportRow) -> None:
        """Logs a failure at once, after the lines of attempts that ended before it."""
        is_final = not (row.is_retryable and context.assignment.retries_left)
        log, event = (self._log.error, "job_failed") if is_final else (self._log.warning, "attempt_failed")
        if not is_on(self._log, logging.ERROR if is_final else logging.WARNING):
            return
        self.flush()
        traceback = traceback_of(row.output)
        log(
            event,
            job_id=context.job_id,
            message=failure_text(row.failure_reason, row.summary),
            type=context.assignment.type,
            attempt=context.attempt,
            outcome=name(row.state),
            runtime_ms=row.runtime_ms,
            **({"exception": traceback} if traceback else {}),
        )

    def _finished(self, context: JobContext, row: ReportRow, now_ms: int) -> None:
        lines, assignment, outcome = self._lines, context.assignment, name(row.state)
        if lines is None:
            self._log.info(
                "job_finished",
                job_id=assignment.job_id,
                type=assignment.type,
                attempt=assignment.attempt,
                outcome=outcome,
                runtime_ms=row.runtime_ms,
            )
            return
        if not self._due:
            asyncio.get_running_loop().call_later(_COLLECT_S, self.flush)
        self._due.append(
            FinishedLine(
                now_ms,
                "info",
                lines.service,
                "",
                "job_finished",
                assignment.job_id,
                self._worker_id,
                "",
                assignment.type,
                assignment.attempt,
                outcome,
                row.runtime_ms,
            )
        )
        if len(self._due) >= _LINES_MAX:
            self.flush()
