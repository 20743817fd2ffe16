"""The two ports that every backend implements, and the values that cross them.

A gateway uses `JobApi`, the worker runtime uses `WorkApi`. A method either does what its docstring says or raises a
`HoldfastError`. If a submit raises `UnavailableError` or `DeadlineExceededError`, it is unknown whether the job exists;
repeat the submit with the same request id to find out. Further capabilities (schedules, the event feed, history,
administration) have ports of their own; a backend declares which of them it lacks.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Annotated, Protocol, runtime_checkable

import msgspec

from holdfast.core.capabilities import Capabilities
from holdfast.core.commands import CancelReply, ReportRow, Submitted
from holdfast.core.history import Entry
from holdfast.core.lifecycle import State
from holdfast.core.model import Extra, Note, QueueMode, Template
from holdfast.core.model import ScheduleSpec as ScheduleSpec  # noqa: PLC0414 - part of this port
from holdfast.core.overview import QueueView as QueueView  # noqa: PLC0414 - part of this port
from holdfast.core.progress import Progress as Progress  # noqa: PLC0414 - part of this port


class JobDraft(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job to submit. It is due after `delay_ms` or at `not_before_ms`, whichever is later."""

    template: int = 0
    payload: bytes = b""
    delay_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    not_before_ms: int = 0
    extra: Extra | None = None
    #: A UUID that the client generates, so that a retry finds the first submission; empty: the backend generates it.
    id: str = ""


class JobView(msgspec.Struct, frozen=True):
    """A job as clients see it, at one instant."""

    id: str
    template: Template
    state: State
    created_ms: int
    started_ms: int
    finished_ms: int
    not_before_ms: int
    cancel_requested: bool
    failure_reason: str
    attempts: int
    extra: Extra | None
    failures: int = 0
    losses: int = 0
    #: The fencing token of the last lease.
    token: int = 0
    #: The worker that runs the job; empty while no worker does.
    worker: str = ""
    progress: Progress | None = None


class ResultView(msgspec.Struct, frozen=True):
    """The result of a job; until the job is terminal, only `state` is set."""

    state: State
    output: bytes = b""
    summary: str = ""
    runtime_ms: int = 0


class Page(msgspec.Struct, frozen=True):
    """One page of a listing, and whether more jobs follow."""

    jobs: list[JobView]
    has_more: bool


class JobQuery(msgspec.Struct, frozen=True):
    """A filter for jobs; empty fields match every job, and a job must have all of the labels."""

    states: frozenset[State] = frozenset()
    queue: str = ""
    type: str = ""
    labels: dict[str, str] = {}
    created_from_ms: int = 0
    created_before_ms: int = 0
    oldest_first: bool = False


class SearchPage(msgspec.Struct, frozen=True):
    """Some matching jobs, and the cursor for the next call; an empty cursor means that there are no more.

    The list may be short or empty although more jobs match: a search stops after a number of jobs, so that other calls
    do not wait for it.
    """

    jobs: list[JobView]
    cursor: str


class Explanation(msgspec.Struct, frozen=True):
    """The explanation of a job's current state: a stable reason and a sentence."""

    state: State
    reason: str
    sentence: str


class JobApi(Protocol):
    """The operations that clients call; every backend implements them."""

    async def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Submits jobs. Returned ids are durable; refused drafts have an empty id and a reason. On failure: unknown."""
        ...

    async def get(self, job_id: str) -> JobView:
        """Returns the authoritative state. `NotFoundError` if there is no such job; a failure changes nothing."""
        ...

    async def result(self, job_id: str) -> ResultView:
        """Returns the result, if there is one. `NotFoundError` if there is no such job; a failure changes nothing."""
        ...

    async def cancel(self, job_id: str, reason: str) -> CancelReply:
        """Cancels a job: a queued one never runs after this returns; a running one is requested to stop. Idempotent."""
        ...

    async def page(self, states: Collection[State], offset: int, size: int, *, newest_first: bool) -> Page:
        """Lists jobs by creation time, then ids ascending; no states means all. A failure changes nothing."""
        ...

    async def explain(self, job_id: str) -> Explanation:
        """Explains why a job is not running, or how it ended. `NotFoundError` if there is no such job."""
        ...

    def watch(self, job_id: str) -> AsyncIterator[JobView]:
        """Yields the job now and after each change until it is terminal; changes except the last may be merged."""
        ...

    async def settled(self, job_id: str) -> tuple[JobView, ResultView]:
        """Waits until the job is terminal, and returns it with its result. Safe to cancel and repeat."""
        ...

    async def payload(self, job_id: str) -> bytes:
        """Returns the payload of a job. `NotFoundError` if there is no such job."""
        ...

    async def find(self, query: JobQuery, cursor: str, size: int) -> SearchPage:
        """Returns matching jobs by creation time. `InvalidArgumentError` for a cursor of another query."""
        ...

    async def retry(self, job_id: str, request_id: str = "") -> str:
        """Submits a finished job again and returns the new id; `FailedPreconditionError` if it has not ended."""
        ...


@runtime_checkable
class ForgetApi(Protocol):
    """A capability: a client may remove a job once it has the result, before retention does."""

    async def forget(self, job_id: str) -> None:
        """Removes the job and its result. `FailedPreconditionError` if it has not ended."""
        ...


class WorkerView(msgspec.Struct, frozen=True):
    """One worker, as in its last introduction."""

    worker_id: str
    types: list[str]
    queues: list[str]
    slots: int
    running: int
    is_draining: bool
    is_streaming: bool
    heard_ms_ago: int


class Stats(msgspec.Struct, frozen=True):
    """Numbers about the whole system, at one instant."""

    position: int
    now_ms: int
    states: dict[str, int]
    bytes_held: int
    epoch: int
    cluster_id: str
    workers: int
    slots: int
    leases: int
    #: The Unix socket for processes of the same machine; empty: none.
    socket: str = ""
    #: The number of nodes and the index of this one; 0 nodes: not a monolith.
    nodes: int = 0
    node_index: int = 0
    #: The size of held jobs above which submits are refused; 0: unknown.
    bytes_held_max: int = 0
    #: Sentences about problems that need an operator; usually empty.
    warnings: tuple[str, ...] = ()


class AdminApi(Protocol):
    """A capability: operations for administrators."""

    async def stats(self) -> Stats:
        """Returns the numbers; they count durable state only."""
        ...

    async def queues(self) -> list[QueueView]:
        """Returns every queue that has jobs or is not open, by name."""
        ...

    async def set_queue_mode(self, queue: str, mode: QueueMode, reason: str) -> None:
        """Sets the mode of a queue. Durable when it returns; idempotent. Running jobs continue."""
        ...

    async def purge(self, queue: str, reason: str) -> int:
        """Cancels the jobs that wait in the queue now, and returns their number; on failure some may be canceled."""
        ...

    async def workers(self) -> list[WorkerView]:
        """Returns every worker that is connected or was so recently."""
        ...

    async def drain_worker(self, worker_id: str) -> None:
        """Requests a worker to finish its jobs and exit. `NotFoundError` if it is not connected."""
        ...


class CapabilityApi(Protocol):
    """The query for capabilities, which every backend supports."""

    async def capabilities(self) -> Capabilities:
        """Returns the capabilities of the backend, and the version of the server."""
        ...


class FeedPart(msgspec.Struct, frozen=True):
    """Entries in order, and the position up to which the feed is complete."""

    entries: list[Entry]
    position: int


class HistoryApi(Protocol):
    """A capability: the history of one job. Every backend with a feed has it; some have it without a feed."""

    async def history(self, job_id: str) -> list[Entry]:
        """Returns everything that happened to a job, oldest first. `NotFoundError` if the job is unknown."""
        ...


class FeedApi(HistoryApi, Protocol):
    """A capability: the event stream of all jobs, without gaps."""

    def feed(self, after: int | None) -> AsyncIterator[FeedPart]:
        """Yields the durable entries past this position (None: from now on), then new ones as they become durable.

        `NotFoundError` if the journal no longer contains the position, or does not contain it yet.
        """
        ...


class ScheduleView(msgspec.Struct, frozen=True):
    """A schedule at one instant; times of events that have not happened, or will not, are 0."""

    spec: ScheduleSpec
    is_paused: bool
    created_ms: int
    next_ms: int
    last_tick_ms: int
    last_job_id: str
    fired: int
    skipped: int
    missed: int


class ScheduleApi(Protocol):
    """A capability: schedules, which create jobs by time."""

    async def set(self, spec: ScheduleSpec) -> ScheduleView:
        """Creates or replaces the schedule of this name; durable when it returns, idempotent."""
        ...

    async def get(self, name: str) -> ScheduleView:
        """Returns one schedule. `NotFoundError` if there is none."""
        ...

    async def all(self) -> list[ScheduleView]:
        """Returns all schedules, by name."""
        ...

    async def delete(self, name: str) -> None:
        """Deletes a schedule, but not its jobs. Durable when it returns. `NotFoundError` if there is none."""
        ...

    async def pause(self, name: str, *, is_paused: bool) -> ScheduleView:
        """Pauses or resumes a schedule. Durable when it returns; idempotent. `NotFoundError` if there is none."""
        ...

    async def trigger(self, name: str) -> str:
        """Creates a job now, despite overlap rule and pause, and returns its id. `NotFoundError` if there is none."""
        ...

    async def preview(self, spec: ScheduleSpec, after_ms: int, count: int) -> list[int]:
        """Returns the next ticks after this instant (0: now); the schedule need not exist."""
        ...


class Assignment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One lease, as a worker runs it."""

    token: int
    job_id: str
    type: str
    payload: bytes = b""
    attempt: int = 1
    timeout_ms: int = 0
    simulated: bool = False
    work_duration_ms: int = 0
    payload_size_bytes: int = 0
    labels: dict[str, str] = {}
    headers: dict[str, str] = {}
    queue: str = ""
    #: The number of retries that remain after this attempt; 0: this is the last attempt.
    retries_left: int = 0


class Introduction(msgspec.Struct, frozen=True, array_like=True):
    """A worker's id, the jobs it can run, and the leases it still holds from an earlier session.

    `instance` identifies this run of the worker's program among others with the same id. `dies_with_server` is true if
    the worker's process ends whenever the server's process does.
    """

    worker_id: str
    types: frozenset[str]
    queues: frozenset[str] = frozenset()
    slots: int = 1
    held: dict[int, str] = {}
    instance: str = ""
    dies_with_server: bool = False


class Directive(msgspec.Struct, frozen=True, array_like=True):
    """A message from the backend to a worker. `reported` acknowledges reports up to that number as durable."""

    leases: list[Assignment] = []
    cancels: list[int] = []
    revoked: list[int] = []
    reported: int = 0
    lease_ms: int = 0
    heartbeat_ms: int = 0
    is_stopping: bool = False
    #: All leases that were granted before `drain` have been delivered.
    is_drained: bool = False
    #: An administrator requests this worker to drain and exit.
    is_drain_asked: bool = False
    #: The same as `is_drained`, after a recall; only in sessions that can take back offered credit.
    is_recalled: bool = False
    #: In the first directive: the server renews leases after an outage, so a worker that cannot reach it continues.
    are_leases_renewed: bool = False
    #: In the first directive, if the backend lacks a capability; None: it has all of them.
    capabilities: Capabilities | None = None


class WorkSession(Protocol):
    """One session of a worker. A method that raises ends it: open another that names the leases still held."""

    async def next(self) -> Directive:
        """Waits for the next directive; the first one carries `lease_ms`, `heartbeat_ms` and `capabilities`."""
        ...

    async def want(self, count: int) -> None:
        """Adds credit for this many more leases. It is lost with the session."""
        ...

    async def report(self, report_id: int, rows: Sequence[ReportRow]) -> None:
        """Sends outcomes; they are durable when `reported` reaches `report_id`, and may be sent again until then."""
        ...

    async def note(self, notes: Sequence[Note]) -> None:
        """Sends notes of running attempts. If the session ends, unsent notes are lost.

        A backend without `Capability.NOTES` drops them, and declares so in its first directive.
        """
        ...

    async def extend(self) -> None:
        """Extends every lease of this worker. If the message is lost, the leases expire."""
        ...

    async def release(self, tokens: Collection[int]) -> None:
        """Hands back leases of jobs that did not run. If the message is lost, the leases expire."""
        ...

    async def drain(self) -> None:
        """Requests that no more leases are granted; the worker finishes those it holds."""
        ...

    async def close(self) -> None:
        """Ends the session and returns the leases still held at once. After an error it only frees resources."""
        ...


class WorkApi(Protocol):
    """The source of a worker's leases."""

    async def open(self, introduction: Introduction) -> WorkSession:
        """Opens a session. `UnavailableError` if no server answers: retry later."""
        ...
