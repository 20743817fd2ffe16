"""What running job code can ask and say: who it is, how far it got, whether it should stop.

A context is made when a lease arrives and ends with its attempt. Job code reads and writes it wherever it runs, the
worker's loop collects what was said; each of the few operations that cross threads is one atomic step.
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

#: The newest lines between two heartbeats are kept, with room for one that says how many are not.
_LINES_MAX = limits.NOTE_LINES_MAX - 1


class JobInterrupt(BaseException):
    """The attempt must end; not an `Exception`, so that job code does not take it for one of its own errors."""


class CancelInterrupt(JobInterrupt):
    """Somebody asked for the end of the job, or its lease was lost."""


class TimeoutInterrupt(JobInterrupt):
    """The attempt has taken longer than the job allows."""


class JobContext:
    """One attempt, seen from inside."""

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
        #: Of the process whose attempt this is; one that job code forks off has a copy, and no say.
        self.pid = os.getpid()
        #: 0 until it runs.
        self.started_s = 0.0
        #: 0 until its outcome is known, and for ever if it never ran.
        self.ended_s = 0.0
        #: Why the attempt must end, once it must.
        self.interrupt: type[JobInterrupt] | None = None
        #: An exception was put into the thread that runs it; that happens once at most.
        self.is_injected = False
        #: The lease is no longer ours: whatever comes of it is nobody's business.
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
        """The queue it waited in."""
        return self.assignment.queue

    @property
    def attempt(self) -> int:
        """Which run of the job this is, from 1."""
        return self.assignment.attempt

    @property
    def token(self) -> int:
        """The number of the lease; it only grows, so whoever is written to can refuse an older one."""
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
        """The tick that this job was made for, in UTC, however late it runs; None for a job that no schedule made."""
        text = self.assignment.headers.get(SCHEDULED_FOR, "")
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return None
        return moment if moment.tzinfo is not None else None

    @property
    def schedule(self) -> str:
        """The name of the schedule that made this job; empty for a job that none made."""
        return self.assignment.headers.get(SCHEDULE, "")

    @property
    def timeout_ms(self) -> int:
        """How long an attempt may take; 0: as long as it takes."""
        return self.assignment.timeout_ms

    @property
    def remaining_s(self) -> float | None:
        """How long this attempt may still take; None: as long as it takes."""
        if not self.assignment.timeout_ms:
            return None
        started_s = self.started_s or time.monotonic()
        return max(0.0, started_s + self.assignment.timeout_ms / 1_000 - time.monotonic())

    @property
    def is_canceled(self) -> bool:
        """Whether the attempt should end: somebody asked for it, its time is over, or its lease is lost."""
        return self.interrupt is not None

    def raise_if_canceled(self) -> None:
        """Ends the attempt here if it should end."""
        if self.interrupt is not None:
            raise self.interrupt

    def progress(self, fraction: float, message: str = "") -> None:
        """Says how far the attempt got, from 0 to 1; watchers see it with the next heartbeat.

        A backend without the capability `notes` drops it; the worker warns of that when it starts.
        """
        if not 0 <= fraction <= 1:  # also what is no number
            raise ValueError(f"expected the progress to be from 0 to 1, got {fraction!r}")
        self._message = as_text(str(message)[: limits.NOTE_MESSAGE_CHARS_MAX])
        self._permille = int(fraction * 1_000)
        self._noted(self)

    def log(self, line: object) -> None:
        """Keeps a line with the job's history, unless the backend lacks the capability `notes`."""
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
        """Whether there is something that nobody has taken yet."""
        return self._lines is not None or self._permille >= 0

    def take_note(self) -> Note | None:
        """What was said since the last time, for whoever sends it on."""
        lines, self._lines = self._lines, None
        permille, self._permille = self._permille, -1
        dropped, self._dropped = self._dropped, 0
        if not lines and permille < 0:
            return None
        if dropped:
            lines = [f"({dropped} lines before this one were too many)", *(lines or ())]
        return Note(self.job_id, self.token, permille, self._message, tuple(lines or ()))

    def add_note(self, note: Note) -> None:
        """Takes over what a child process says for this attempt."""
        if note.permille >= 0:
            self._permille, self._message = note.permille, note.message
        self._lines = [*(self._lines or ()), *note.lines][-_LINES_MAX:]
        self._noted(self)


CURRENT: ContextVar[JobContext] = ContextVar("holdfast_job")


def current() -> JobContext:
    """The job that this code runs for; `LookupError` outside of one."""
    try:
        return CURRENT.get()
    except LookupError:
        raise LookupError("no job runs here: ask for the current job only inside a handler") from None
