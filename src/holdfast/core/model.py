"""The records of the core: jobs, templates, schedules, results and leases.

Invariants:
- `Template`, `Extra`, `NewJob` and `Result` are values: they are written to the journal and never change. The journal
  stores them as arrays, so a new field goes to the end and has a default.
- `JobRecord` is the one mutable record of a job; only `apply` changes it.
- `JobRecord` and `Lease` are exempt from garbage collection tracking (a million of them must not slow every collection
  down), so they must never be part of a reference cycle: neither refers back to a container.
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

#: The built-in type whose handler runs every job of the frozen contract without a handler of its own.
SIM_TYPE = "sim"


class QueueMode(IntEnum):
    """The mode of a queue; the numbers are part of the contract and of the journal."""

    OPEN = 1
    #: Accepts jobs and grants none.
    PAUSED = 2
    #: Grants jobs and accepts no new ones.
    DRAINING = 3


class Closure(NamedTuple):
    """The mode of a queue that is not open, its reason, and the time when it was set."""

    mode: QueueMode
    reason: str
    at_ms: int


class Now(NamedTuple):
    """The time inside a command.

    `log_ms` orders history and is written into events: it follows the wall clock but never decreases. `served_ms`
    advances only while the coordinator is listening; leases are measured in it.
    """

    log_ms: int
    served_ms: int


class BackoffRule(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The delay before a retry: the kind, the base and the maximum, in milliseconds."""

    kind: int = EXPONENTIAL
    base_ms: int = 1_000
    max_ms: int = BACKOFF_MS_MAX


class Template(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The fields that all jobs of one kind share, so that a batch states them once and memory holds them once."""

    type: str
    queue: str = QUEUE_DEFAULT
    priority: int = PRIORITY_DEFAULT
    max_attempts: int = ATTEMPTS_DEFAULT
    max_losses: int = LOSSES_DEFAULT
    timeout_ms: int = 0
    backoff: BackoffRule = BackoffRule()
    #: Submitted through the frozen contract: runs as simulated work if no handler has its type.
    simulated: bool = False

    @property
    def route(self) -> str:
        """The type that a worker must handle to be granted this job."""
        return SIM_TYPE if self.simulated else self.type


class Extra(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Fields that few jobs have; kept apart so that the other jobs pay for one pointer only."""

    request_id: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    work_duration_ms: int = 0
    payload_size_bytes: int = 0
    retry_of: str = ""
    #: While an unfinished job with the same type and unique key exists, a submission returns that job.
    unique_key: str = ""


class NewJob(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One job of a submission; `template` is an index into the submission's templates."""

    id: str
    template: int
    payload: bytes = b""
    not_before_ms: int = 0
    extra: Extra | None = None


#: Headers of a scheduled job: its scheduled time, and the name of its schedule.
SCHEDULED_FOR, SCHEDULE = "holdfast-scheduled-for", "holdfast-schedule"


class ScheduleSpec(msgspec.Struct, frozen=True, array_like=True):
    """The definition of a schedule: its ticks, its jobs, and the rules for missed ticks and overlapping jobs.

    Exactly one of `cron`, `every_ms` and `at_ms` is set.
    """

    name: str
    template: Template
    payload: bytes = b""
    cron: str = ""
    every_ms: int = 0
    at_ms: int = 0
    timezone: str = "UTC"
    #: Which missed ticks are fired later: `none`, `latest`, or `all` within the window.
    catch_up: str = "none"
    catch_up_window_ms: int = CATCH_UP_WINDOW_MS
    #: The rule for a tick while the last job has not ended: `allow`, `skip` or `cancel_running`.
    overlap: str = "allow"
    jitter_ms: int = 0
    labels: tuple[tuple[str, str], ...] = ()


class Result(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The result of a job, or of one attempt (`state` QUEUED: the job will be retried).

    `token` is that of the lease it was reported under, or 0 if no worker reported it.
    """

    token: int
    state: int
    output: bytes = b""
    summary: str = ""
    failure_reason: str = ""
    runtime_ms: int = 0
    not_before_ms: int = 0


class Note(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Progress (-1: none) and log lines of a running attempt. Changes no state."""

    job_id: str
    token: int
    permille: int = -1
    message: str = ""
    lines: tuple[str, ...] = ()


if TYPE_CHECKING:
    _TemplateOrIndex = Template
else:
    #: A row of an image has the index of a template; `image.read_chunks` replaces it by the template.
    _TemplateOrIndex = Template | int


#: The mark of a job whose digest term is not computed yet. No digest version has this term.
NO_MARK = -1


class JobRecord(msgspec.Struct, array_like=True, gc=False):
    """The record of one job. `number` is its permanent place in submit order.

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
    #: Number of leases so far, including those that were handed back unrun.
    grants: int = 0
    #: Number of failed attempts that were followed by a retry.
    failures: int = 0
    losses: int = 0
    started_ms: int = 0
    finished_ms: int = 0
    cancel_requested: bool = False
    result: Result | None = None
    #: The reason of a requested cancel, while the job still runs.
    cancel_reason: str = ""
    #: The time when the job last lost its lease.
    lost_ms: int = 0
    #: The chunk of the listing that contains the job.
    chunk: int = 0
    #: Which of the job's entries in the ready queue is live (see `lane`).
    place: int = 0
    #: The job's current term in the digest of the state; `NO_MARK` until its first change after a start.
    mark: int = NO_MARK
    #: The bytes that a finished job holds (see `footprint`); 0 until the job ends.
    bytes_held: int = 0

    @property
    def attempts(self) -> int:
        """The known number of attempts; a lease that was handed back unrun is not an attempt."""
        is_last = self.state == RUNNING or (self.result is not None and self.result.token != 0)
        return self.failures + self.losses + is_last

    @property
    def failed_attempts(self) -> int:
        """The number of attempts that ended with an error."""
        is_last = self.state == FAILED and self.result is not None and self.result.token != 0
        return self.failures + is_last

    @property
    def request_id(self) -> str:
        """The key under which the submitter may repeat the submission; empty if there is none."""
        return self.extra.request_id if self.extra else ""

    @property
    def unique_key(self) -> str:
        """The key that is unique among the unfinished jobs of this type; empty if there is none."""
        return self.extra.unique_key if self.extra else ""


class Schedule(msgspec.Struct):
    """The record of one schedule; `created_ms` is when the plan was made, and intervals count from it."""

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
    """The right of one worker to run one job, until its deadline or the loss of its worker.

    `deadline_ms` is its end in served time; heartbeats move it, and it is not in the journal. `expires_ms` is its end
    in log time, as the journal has it; it applies to a lease whose worker has sent no heartbeat since a start.
    """

    token: int
    job: JobRecord
    worker: str
    granted_ms: int
    lease_ms: int
    expires_ms: int
    deadline_ms: int
    #: Number of starts since the worker's last heartbeat, as the journal has it.
    restarts: int = 0
    #: The server process that a local worker ends with; empty for other workers.
    host: str = ""
