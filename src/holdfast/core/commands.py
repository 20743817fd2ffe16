"""The commands that the ledger accepts, and its replies.

The ledger decides each command at one instant. The decision is one event, a reply without an event, or a refusal. A
refusal is a value, not an exception: the request was invalid or too late, and the state did not change.
"""

import msgspec

from holdfast.core.events import AnyEvent
from holdfast.core.lifecycle import State
from holdfast.core.model import Extra, NewJob, Note, QueueMode, ScheduleSpec, Template
from holdfast.errors import Code, HoldfastError, error_class
from holdfast.limits import RETAIN_FAILED_MS_DEFAULT


class Refusal(msgspec.Struct, frozen=True):
    """A refused command: a status code, a stable reason, and a sentence for people."""

    code: Code
    reason: str
    message: str

    def error(self) -> HoldfastError:
        """Returns the refusal as an exception."""
        return error_class(self.code)(self.message, reason=self.reason)


class Submit(msgspec.Struct, frozen=True):
    """Submit jobs. With `are_ids_given`, clients made some of the ids, and the ledger checks their form."""

    templates: list[Template]
    jobs: list[NewJob]
    are_ids_given: bool = False


class Submitted(msgspec.Struct, frozen=True):
    """The id of each job, with an empty string for each refused one, and the refusals by index.

    `existing` holds the indexes of jobs that existed before: a repeated submission, or a match by unique key.
    """

    job_ids: list[str]
    at_ms: int
    refusals: dict[int, Refusal]
    existing: frozenset[int] = frozenset()


class Cancel(msgspec.Struct, frozen=True):
    """Cancel a queued job at once, or request the end of a running one."""

    job_id: str
    reason: str


class CancelReply(msgspec.Struct, frozen=True):
    """The job's state after the cancel; `token` names the lease whose holder must be notified."""

    state: State
    was_terminal: bool
    token: int = 0


class CancelQueued(msgspec.Struct, frozen=True):
    """Cancel those of these jobs that are still queued; the reply is the list of their ids."""

    job_ids: list[str]
    reason: str


class SetQueueMode(msgspec.Struct, frozen=True):
    """Open, pause or drain a queue; the reply is None."""

    queue: str
    mode: QueueMode
    reason: str


class GrantLeases(msgspec.Struct, frozen=True):
    """Grant up to `count` jobs of these routes and queues (an empty set means all queues)."""

    worker: str
    routes: frozenset[str]
    queues: frozenset[str]
    count: int
    lease_ms: int
    #: The worker ends together with the server process.
    is_local: bool = False


class GrantedLease(msgspec.Struct, frozen=True, gc=False):
    """All that a worker needs to run one job."""

    token: int
    job_id: str
    template: Template
    payload: bytes
    attempt: int
    extra: Extra | None = None
    #: Retries that remain if this attempt fails.
    retries_left: int = 0


class Extend(msgspec.Struct, frozen=True):
    """A heartbeat. With `held`, leases that it does not name and that are older than `grace_ms` are revoked."""

    worker: str
    lease_ms: int
    held: frozenset[int] | None = None
    grace_ms: int = 0


class Heard(msgspec.Struct, frozen=True):
    """The reply to a heartbeat: the worker's valid leases, and those whose jobs it must cancel."""

    held: list[int]
    cancels: list[int]


class ReportRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The outcome of one attempt, as its worker reports it. Token 0 means the worker's current lease on the job."""

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
    """Outcomes of attempts, reported by one worker."""

    worker: str
    rows: list[ReportRow]


class ReportReply(msgspec.Struct, frozen=True):
    """For each row, an empty string if it was accepted, or the reason for its refusal."""

    refused: list[str]


class TakeNotes(msgspec.Struct, frozen=True):
    """Progress and log lines from attempts of one worker.

    The reply is a list: for each note an empty string if it was accepted, or the reason for its refusal.
    """

    worker: str
    notes: list[Note]


class Revoke(msgspec.Struct, frozen=True):
    """Revoke leases of one worker: those with these tokens, or all of them."""

    worker: str
    reason: str
    is_spent: bool
    tokens: frozenset[int] | None = None


class SetSchedule(msgspec.Struct, frozen=True):
    """Create or replace a schedule; the reply is its name."""

    spec: ScheduleSpec


class DeleteSchedule(msgspec.Struct, frozen=True):
    """Delete a schedule; the reply is None."""

    name: str


class PauseSchedule(msgspec.Struct, frozen=True):
    """Pause or resume a schedule; the reply is None."""

    name: str
    is_paused: bool


class TriggerSchedule(msgspec.Struct, frozen=True):
    """Create a job from a schedule now; the reply is the given job id."""

    name: str
    job_id: str


class Tick(msgspec.Struct, frozen=True):
    """Process the earliest due tick; its job, if any, gets this id. The reply says whether a tick was due."""

    job_id: str


class Expire(msgspec.Struct, frozen=True):
    """Revoke leases whose deadline has passed, at most `leases_max`, so that other commands do not wait long."""

    leases_max: int = 1_000


class Evict(msgspec.Struct, frozen=True):
    """Remove finished jobs that exceed the retention limits; failed jobs have an age limit of their own."""

    retain_ms: int
    retain_jobs: int
    retain_bytes: int
    retain_failed_ms: int = RETAIN_FAILED_MS_DEFAULT


class Start(msgspec.Struct, frozen=True):
    """A coordinator starts serving in this process."""

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
    """Leases that get a new deadline, `lease_ms` of served time from now. It is not journaled."""

    tokens: list[int]
    lease_ms: int


class Decision(msgspec.Struct, frozen=True):
    """At most one event, and the reply to send once the event is durable.

    An extension takes effect at once, whether or not the event is durable.
    """

    event: AnyEvent | None
    reply: object = None
    extension: Extension | None = None
