"""The context of an attempt, through which job code reads its job, reports progress, and sees interrupts.

A context is made when a lease arrives and ends with its attempt. Job code uses it on any thread, and the worker's loop
collects the notes; each operation that crosses threads is one atomic step.
"""

import os
import time
from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime

from holdfast import limits
from holdfast.core.model import SCHEDULE, SCHEDULED_FOR, Note
from holdfast.core.text import as_text
from holdfast.ports import Assignment
from holdfast.worker.handlers import Handler

#: Only the newest lines between two heartbeats are kept. One more line says how many were dropped.
_LINES_MAX = limits.NOTE_LINES_MAX - 1


class JobInterrupt(BaseException):
    """The attempt must end. Not an `Exception`, so that job code does not catch it as one of its own errors."""


class CancelInterrupt(JobInterrupt):
    """A cancel was requested, or the lease was lost."""


class TimeoutInterrupt(JobInterrupt):
    """The attempt has taken longer than the job allows."""


class JobContext:
    """One attempt, as its job code sees it."""

    __slots__ = (
        "_dropped", "_lines", "_message", "_noted", "_permille",
        "arrived_s", "assignment", "ended_s", "handler", "interrupt", "is_injected", "is_revoked", "pid", "started_s",
    )  # fmt: skip

    def __init__(
        self, assignment: Assignment, handler: Handler, arrived_s: float, noted: "Callable[[JobContext], object]"
    ) -> None:
        self.assignment = assignment
        self.handler = handler
        self.arrived_s = arrived_s
        #: The process of this attempt. A process that job code forks has a copy of the context, and must not report.
        self.pid = os.getpid()
        #: 0 until it runs.
        self.started_s = 0.0
        #: 0 until its outcome is known; stays 0 if it never ran.
        self.ended_s = 0.0
        #: The reason why the attempt must end; None while it may run.
        self.interrupt: type[JobInterrupt] | None = None
        #: Whether an exception was injected into the thread of this attempt; that happens at most once.
        self.is_injected = False
        #: Whether the lease was lost or handed back; the outcome is then discarded.
        self.is_revoked = False
        self._noted = noted
        self._permille = -1
        self._message = ""
        self._lines: list[str] | None = None
        self._dropped = 0

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self.assignment.job_id

    @property
    def type(self) -> str:
        """The job's type."""
        return self.assignment.type

    @property
    def queue(self) -> str:
        """The job's queue."""
        return self.assignment.queue

    @property
    def attempt(self) -> int:
        """The number of this run of the job, from 1."""
        return self.assignment.attempt

    @property
    def token(self) -> int:
        """The fencing token of the lease. Tokens only grow, so other systems can refuse writes with an older one."""
        return self.assignment.token

    @property
    def labels(self) -> dict[str, str]:
        """The job's labels."""
        return self.assignment.labels

    @property
    def headers(self) -> dict[str, str]:
        """The job's headers."""
        return self.assignment.headers

    @property
    def scheduled_for(self) -> datetime | None:
        """The schedule's tick that created this job, in UTC, however late it runs; None without a schedule."""
        text = self.assignment.headers.get(SCHEDULED_FOR, "")
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return None
        return moment if moment.tzinfo is not None else None

    @property
    def schedule(self) -> str:
        """The name of the schedule that created this job; empty for a job without a schedule."""
        return self.assignment.headers.get(SCHEDULE, "")

    @property
    def timeout_ms(self) -> int:
        """Time limit of an attempt; 0: no limit."""
        return self.assignment.timeout_ms

    @property
    def remaining_s(self) -> float | None:
        """Seconds until this attempt times out; None: no limit."""
        if not self.assignment.timeout_ms:
            return None
        started_s = self.started_s or time.monotonic()
        return max(0.0, started_s + self.assignment.timeout_ms / 1_000 - time.monotonic())

    @property
    def is_canceled(self) -> bool:
        """Whether the attempt should end: a cancel was requested, it timed out, or its lease is lost."""
        return self.interrupt is not None

    def raise_if_canceled(self) -> None:
        """Raises the interrupt if the attempt should end."""
        if self.interrupt is not None:
            raise self.interrupt

    def progress(self, fraction: float, message: str = "") -> None:
        """Reports the progress of the attempt, from 0 to 1; clients see it after the next heartbeat.

        A backend without the capability `notes` drops it; the worker then logs a warning when it starts.
        """
        if not 0 <= fraction <= 1:  # also refuses NaN
            raise ValueError(
                f"progress must be a number from 0 to 1, got {fraction!r}; pass a fraction such as done / total"
            )
        self._message = as_text(str(message)[: limits.NOTE_MESSAGE_CHARS_MAX])
        self._permille = int(fraction * 1_000)
        self._noted(self)

    def log(self, line: object) -> None:
        """Adds a line to the job's history, unless the backend lacks the capability `notes`."""
        lines = self._lines
        if lines is None:
            lines = self._lines = []
        if len(lines) >= _LINES_MAX:
            del lines[0]
            self._dropped += 1
        lines.append(as_text(str(line)[: limits.NOTE_LINE_CHARS_MAX]))
        self._noted(self)

    @property
    def has_said(self) -> bool:
        """Whether there is a note that was not collected yet."""
        return self._lines is not None or self._permille >= 0

    def take_note(self) -> Note | None:
        """Returns the note since the last call, to be sent to the backend; None if there is none."""
        lines, self._lines = self._lines, None
        permille, self._permille = self._permille, -1
        dropped, self._dropped = self._dropped, 0
        if not lines and permille < 0:
            return None
        if dropped:
            lines = [f"({dropped} earlier lines were dropped)", *(lines or ())]
        return Note(self.job_id, self.token, permille, self._message, tuple(lines or ()))

    def add_note(self, note: Note) -> None:
        """Adds a note from the child process that runs this attempt."""
        if note.permille >= 0:
            self._permille, self._message = note.permille, note.message
        self._lines = [*(self._lines or ()), *note.lines][-_LINES_MAX:]
        self._noted(self)


CURRENT: ContextVar[JobContext] = ContextVar("holdfast_job")


def current() -> JobContext:
    """Returns the context of the job that calls this; `LookupError` outside of a job."""
    try:
        return CURRENT.get()
    except LookupError:
        raise LookupError("there is no current job here; call current() only inside a handler") from None
