"""What can be asked of the ledger, and what it answers.

A command is decided at one instant and leads to one event, or to a reply without one, or to a refusal, which is
a value: the caller was wrong or late, and nothing happened.
"""

import msgspec

from holdfast.core.events import AnyEvent
from holdfast.core.lifecycle import State
from holdfast.core.model import Extra, NewJob, Note, QueueMode, ScheduleSpec, Template
from holdfast.errors import Code, HoldfastError, error_class
from holdfast.limits import RETAIN_FAILED_MS_DEFAULT


class Refusal(msgspec.Struct, frozen=True):
    """Why nothing happened: a status code, a stable reason, a sentence."""

    code: Code
    reason: str
    message: str

    def error(self) -> HoldfastError:
        """The same for callers who are told by an exception."""
        return error_class(self.code)(self.message, reason=self.reason)


class Submit(msgspec.Struct, frozen=True):
    """Accept these jobs. With `are_ids_given`, clients made some of the ids, and their form is checked."""

    templates: list[Template]
    jobs: list[NewJob]
    are_ids_given: bool = False


class Submitted(msgspec.Struct, frozen=True):
    """For each job its id or an empty string, with the refusals.

    `existing` are the indexes of those that were there before: repeated, or found under their unique key.
    """

    job_ids: list[str]
    at_ms: int
    refusals: dict[int, Refusal]
    existing: frozenset[int] = frozenset()


class Cancel(msgspec.Struct, frozen=True):
    """Cancel a queued job at once, ask for the end of a running one."""

    job_id: str
    reason: str


class CancelReply(msgspec.Struct, frozen=True):
    """The job's state now; `token` names the lease whose holder should be told."""

    state: State
    was_terminal: bool
    token: int = 0


class CancelQueued(msgspec.Struct, frozen=True):
    """Cancel those of these jobs that still wait, together; the reply is the list of their ids."""

    job_ids: list[str]
    reason: str


class SetQueueMode(msgspec.Struct, frozen=True):
    """Open, pause or drain a queue; the reply is None."""

    queue: str
    mode: QueueMode
    reason: str


class GrantLeases(msgspec.Struct, frozen=True):
    """Grant up to `count` jobs of these routes and queues (all queues if none is named)."""

    worker: str
    routes: frozenset[str]
    queues: frozenset[str]
    count: int
    lease_ms: int
    #: The worker dies with the process that serves.
    is_local: bool = False


class GrantedLease(msgspec.Struct, frozen=True, gc=False):
    """What a worker needs to run one job."""

    token: int
    job_id: str
    template: Template
    payload: bytes
    attempt: int
    extra: Extra | None = None
    #: After this attempt, if it and they fail.
    retries_left: int = 0


class Extend(msgspec.Struct, frozen=True):
    """A heartbeat. With `held`, leases older than `grace_ms` that are not in it are taken back."""

    worker: str
    lease_ms: int
    held: frozenset[int] | None = None
    grace_ms: int = 0


class Heard(msgspec.Struct, frozen=True):
    """Which of the worker's leases hold, and which of their jobs should be stopped."""

    held: list[int]
    cancels: list[int]


class ReportRow(msgspec.Struct, frozen=True, gc=False):
    """How one attempt ended, as its worker says. Token 0 means the lease this worker holds on the job."""

    job_id: str
    token: int
    state: int
    output: bytes = b""
    summary: str = ""
    failure_reason: str = ""
    runtime_ms: int = 0
    is_retryable: bool = True
    retry_after_ms: int = 0


class Report(msgspec.Struct, frozen=True):
    """Outcomes from one worker."""

    worker: str
    rows: list[ReportRow]


class ReportReply(msgspec.Struct, frozen=True):
    """For each row an empty string if it counts, or the reason why it does not."""

    refused: list[str]


class TakeNotes(msgspec.Struct, frozen=True):
    """What attempts of one worker say of themselves.

    The reply is a list: for each note an empty string if it was taken, or the reason why it was not.
    """

    worker: str
    notes: list[Note]


class Revoke(msgspec.Struct, frozen=True):
    """Take leases of one worker back: those named, or all of them."""

    worker: str
    reason: str
    is_spent: bool
    tokens: frozenset[int] | None = None


class SetSchedule(msgspec.Struct, frozen=True):
    """Make or replace a schedule; the reply is its name."""

    spec: ScheduleSpec


class DeleteSchedule(msgspec.Struct, frozen=True):
    """Forget a schedule; the reply is None."""

    name: str


class PauseSchedule(msgspec.Struct, frozen=True):
    """Pause a schedule, or let it go on; the reply is None."""

    name: str
    is_paused: bool


class TriggerSchedule(msgspec.Struct, frozen=True):
    """Make a job of a schedule now, under this id, which is the reply."""

    name: str
    job_id: str


class Tick(msgspec.Struct, frozen=True):
    """Let the earliest tick that is due happen; its job, if it makes one, gets this id. The reply: whether one was."""

    job_id: str


class Expire(msgspec.Struct, frozen=True):
    """Take back leases whose time is over, at most so many: others wait behind this event."""

    leases_max: int = 1_000


class Evict(msgspec.Struct, frozen=True):
    """Forget finished jobs that are past what is retained; failed ones have a limit of age of their own."""

    retain_ms: int
    retain_jobs: int
    retain_bytes: int
    retain_failed_ms: int = RETAIN_FAILED_MS_DEFAULT


class Start(msgspec.Struct, frozen=True):
    """A coordinator begins to serve, in this process."""

    epoch: int
    process: str = ""


AnyCommand = (
    Submit
    | Cancel
    | CancelQueued
    | SetQueueMode
    | GrantLeases
    | Extend
    | Report
    | TakeNotes
    | Revoke
    | SetSchedule
    | DeleteSchedule
    | PauseSchedule
    | TriggerSchedule
    | Tick
    | Expire
    | Evict
    | Start
)


class Extension(msgspec.Struct, frozen=True):
    """Leases that run for `lease_ms` from now on, in served time. It is not journaled."""

    tokens: list[int]
    lease_ms: int


class Decision(msgspec.Struct, frozen=True):
    """One event or none, and what to say once it is durable. An extension holds at once, whether or not it is."""

    event: AnyEvent | None
    reply: object = None
    extension: Extension | None = None
