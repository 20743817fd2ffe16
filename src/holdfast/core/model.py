"""What a job is.

Invariants:
- `Template`, `Extra`, `NewJob` and `Result` are values: they cross the journal and never change.
- `Job` is the one mutable record of a job, changed by `apply` alone.
- `Job` and `Lease` are exempt from garbage collection tracking (a million of them must not slow every
  collection down), so they must never be part of a reference cycle: neither points back at a container.
"""

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from holdfast.core.lifecycle import FAILED, QUEUED, RUNNING
from holdfast.limits import (
    ATTEMPTS_DEFAULT,
    BACKOFF_MS_MAX,
    CATCH_UP_WINDOW_MS,
    LOSSES_DEFAULT,
    PRIORITY_DEFAULT,
    QUEUE_DEFAULT,
)

FIXED, EXPONENTIAL, QUADRATIC = range(3)

#: The built-in type whose handler runs every job of the frozen contract that has no handler of its own.
SIM_TYPE = "sim"


class QueueMode(IntEnum):
    """What a queue does; the numbers are part of the contract and of the journal."""

    OPEN = 1
    #: Takes jobs and grants none.
    PAUSED = 2
    #: Grants jobs and takes no new ones.
    DRAINING = 3


class Closure(NamedTuple):
    """The mode of a queue that is not open, why, and since when."""

    mode: QueueMode
    reason: str
    at_ms: int


class Now(NamedTuple):
    """The time inside a command.

    `log_ms` orders history and is written into events: it follows the wall clock but never goes back.
    `served_ms` runs only while the coordinator is listening; leases are measured with it.
    """

    log_ms: int
    served_ms: int


class BackoffRule(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How long a failed job waits: the kind, the base and the cap, in milliseconds."""

    kind: int = EXPONENTIAL
    base_ms: int = 1_000
    max_ms: int = BACKOFF_MS_MAX


class Template(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What all jobs of one kind share, so that a batch states it once and memory holds it once."""

    type: str
    queue: str = QUEUE_DEFAULT
    priority: int = PRIORITY_DEFAULT
    max_attempts: int = ATTEMPTS_DEFAULT
    max_losses: int = LOSSES_DEFAULT
    timeout_ms: int = 0
    backoff: BackoffRule = BackoffRule()
    #: Submitted through the frozen contract: runs as simulated work where no handler knows its type.
    simulated: bool = False

    @property
    def route(self) -> str:
        """The type that a worker must know to be given this job."""
        return SIM_TYPE if self.simulated else self.type


class Extra(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What few jobs have; kept apart so that the many without it pay one pointer."""

    request_id: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    work_duration_ms: int = 0
    payload_size_bytes: int = 0
    retry_of: str = ""
    #: While a job of the same type and unique key has not ended, a submission finds that job.
    unique_key: str = ""


class NewJob(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One job of a submission; `template` is an index into the templates beside it."""

    id: str
    template: int
    payload: bytes = b""
    not_before_ms: int = 0
    extra: Extra | None = None


#: Under these headers a job finds out when it should have been made, and by which schedule.
SCHEDULED_FOR, SCHEDULE = "holdfast-scheduled-for", "holdfast-schedule"


class ScheduleSpec(msgspec.Struct, frozen=True, array_like=True):
    """When jobs of one kind are made, and what happens when that does not go smoothly.

    Exactly one of `cron`, `every_ms` and `at_ms` is said.
    """

    name: str
    template: Template
    payload: bytes = b""
    cron: str = ""
    every_ms: int = 0
    at_ms: int = 0
    timezone: str = "UTC"
    #: What becomes of ticks that were missed: `none`, `latest` or `all` within the window.
    catch_up: str = "none"
    catch_up_window_ms: int = CATCH_UP_WINDOW_MS
    #: While the last job has not ended: `allow`, `skip` or `cancel_running`.
    overlap: str = "allow"
    jitter_ms: int = 0
    labels: tuple[tuple[str, str], ...] = ()


class Result(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How a job ended, or how one attempt of it did (`state` is QUEUED: it will be tried again).

    `token` is that of the lease it was reported under, 0 where no worker reported it.
    """

    token: int
    state: int
    output: bytes = b""
    summary: str = ""
    failure_reason: str = ""
    runtime_ms: int = 0
    not_before_ms: int = 0


class Note(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a running attempt says of itself: progress (-1: none) and lines of its log. Changes no state."""

    job_id: str
    token: int
    permille: int = -1
    message: str = ""
    lines: tuple[str, ...] = ()


if TYPE_CHECKING:
    _TemplateOrIndex = Template
else:
    #: A row of an image has the index of a template; `image.read_chunks` puts the template there.
    _TemplateOrIndex = Template | int


#: The mark of a job whose term was not computed yet. No version of the digest has such a term.
NO_MARK = -1


class Job(msgspec.Struct, array_like=True, gc=False):
    """The record of one job. `number` is its place in submit order, for ever.

    The fields up to `lost_ms` are those of `image.JobRow`, in the same order: a snapshot is decoded into jobs.
    """

    id: str
    template: _TemplateOrIndex
    payload: bytes
    number: int
    created_ms: int
    not_before_ms: int = 0
    extra: Extra | None = None
    state: int = QUEUED
    token: int = 0
    #: Leases so far, those that were handed back unrun included.
    grants: int = 0
    #: Attempts that failed and were followed by another.
    failures: int = 0
    losses: int = 0
    started_ms: int = 0
    finished_ms: int = 0
    cancel_requested: bool = False
    result: Result | None = None
    #: Why it should stop, while it still runs.
    cancel_reason: str = ""
    #: When it last lost its worker.
    lost_ms: int = 0
    #: The chunk of the listing that it is in.
    chunk: int = 0
    #: Which of its entries in the ready queue is the live one (see `lane`).
    place: int = 0
    #: What it adds to the book's digest now; `NO_MARK` until it first changes after a start.
    mark: int = NO_MARK
    #: What it adds to the book's held bytes now (see `footprint`).
    bytes_held: int = 0

    @property
    def attempts(self) -> int:
        """How often it was run, as far as that is known: a lease that was handed back unrun is no attempt."""
        is_last = self.state == RUNNING or (self.result is not None and self.result.token != 0)
        return self.failures + self.losses + is_last

    @property
    def failed_attempts(self) -> int:
        """How many attempts ended with an error."""
        is_last = self.state == FAILED and self.result is not None and self.result.token != 0
        return self.failures + is_last

    @property
    def request_id(self) -> str:
        """The key under which its submitter may repeat the submission; empty if there is none."""
        return self.extra.request_id if self.extra else ""

    @property
    def unique_key(self) -> str:
        """What its type shares with no other job that has not ended; empty if there is none."""
        return self.extra.unique_key if self.extra else ""


class Schedule(msgspec.Struct):
    """The record of one schedule; `created_ms` is when its plan was made, and what intervals count from."""

    spec: ScheduleSpec
    created_ms: int
    next_ms: int
    last_tick_ms: int = 0
    last_job_id: str = ""
    fired: int = 0
    skipped: int = 0
    missed: int = 0
    is_paused: bool = False


class Lease(msgspec.Struct, gc=False):
    """The right of one worker to run one job, until time or its worker's loss revokes it.

    `deadline_ms` is when it ends, in served time; heartbeats move it, and it is not in the journal. `expires_ms` is
    what the journal says of that, in log time: it binds a lease whose worker was not heard since a start.
    """

    token: int
    job: Job
    worker: str
    granted_ms: int
    lease_ms: int
    expires_ms: int
    deadline_ms: int
    #: How often a coordinator has started since the worker was last heard, as far as the journal says.
    restarts: int = 0
    #: The server process with which the worker dies; empty for a worker that does not.
    host: str = ""
