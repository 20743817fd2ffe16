"""The two ports that every backend implements, and the values that cross them.

`JobApi` is what a gateway needs, `WorkApi` what the worker runtime needs. A method either does what its sentence says
or raises a `HoldfastError`; after `UnavailableError` or `DeadlineExceededError` of a submit it is unknown whether the
job exists, and repeating it under the same request id finds out. Capabilities beyond these (schedules, the event
feed, history, administration) get ports of their own; a backend that lacks one says so.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from holdfast.core.capabilities import Capabilities
from holdfast.core.commands import CancelReply, ReportRow, Submitted
from holdfast.core.history import Entry
from holdfast.core.lifecycle import State
from holdfast.core.model import Extra, Note, QueueMode, Template
from holdfast.core.model import ScheduleSpec as ScheduleSpec  # noqa: PLC0414 - part of this port
from holdfast.core.overview import QueueView as QueueView  # noqa: PLC0414 - part of this port
from holdfast.core.progress import Progress as Progress  # noqa: PLC0414 - part of this port


class JobDraft(msgspec.Struct, frozen=True, gc=False):
    """A job that somebody wants accepted. It is due after `delay_ms` or at `not_before_ms`, whichever is later."""

    template: int = 0
    payload: bytes = b""
    delay_ms: int = 0
    not_before_ms: int = 0
    extra: Extra | None = None
    #: A UUID made by the client, so that a repeated submission finds the first one; empty: the backend makes it.
    id: str = ""


class JobView(msgspec.Struct, frozen=True):
    """A job as its clients see it, at one instant."""

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
    #: Of its last lease.
    token: int = 0
    #: Who holds it, while it runs.
    worker: str = ""
    progress: Progress | None = None


class ResultView(msgspec.Struct, frozen=True):
    """How a job ended; `state` is that of the job, and nothing else is filled before it is terminal."""

    state: State
    output: bytes = b""
    summary: str = ""
    runtime_ms: int = 0


class Page(msgspec.Struct, frozen=True):
    """Some jobs of a listing, and whether more follow."""

    jobs: list[JobView]
    has_more: bool


class JobQuery(msgspec.Struct, frozen=True):
    """Which jobs somebody looks for; what is empty is not looked at, and all labels must be there."""

    states: frozenset[State] = frozenset()
    queue: str = ""
    type: str = ""
    labels: dict[str, str] = {}
    created_from_ms: int = 0
    created_before_ms: int = 0
    oldest_first: bool = False


class Found(msgspec.Struct, frozen=True):
    """Some jobs that match, and where to go on; an empty cursor means that there are no more.

    A part may be short, or even empty, and more may follow: a search stops looking after a while, and holds nobody up.
    """

    jobs: list[JobView]
    cursor: str


class Explanation(msgspec.Struct, frozen=True):
    """Why a job is where it is: a stable reason and a sentence."""

    state: State
    reason: str
    sentence: str


class JobApi(Protocol):
    """What clients ask for, whatever keeps the jobs."""

    async def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Every id returned is durable; refused drafts have an empty id and a reason. On failure: unknown."""
        ...

    async def get(self, job_id: str) -> JobView:
        """The job's authoritative state. `NotFoundError` if there is no such job; a failure changes nothing."""
        ...

    async def result(self, job_id: str) -> ResultView:
        """Its result, if it has one yet. `NotFoundError` if there is no such job; a failure changes nothing."""
        ...

    async def cancel(self, job_id: str, reason: str) -> CancelReply:
        """A queued job never runs after this returns; a running one is asked to stop. Safe to repeat."""
        ...

    async def page(self, states: Collection[State], offset: int, size: int, *, newest_first: bool) -> Page:
        """Jobs by creation time, ids ascending within a millisecond; no states means all. A failure changes nothing."""
        ...

    async def explain(self, job_id: str) -> Explanation:
        """Why it is not running, or how it ended. `NotFoundError` if there is no such job."""
        ...

    def watch(self, job_id: str) -> AsyncIterator[JobView]:
        """The job now and after each change until it is terminal; changes may be merged, the last never is."""
        ...

    async def settled(self, job_id: str) -> tuple[JobView, ResultView]:
        """The job and its result, once it is terminal; waits as long as that takes. Safe to give up and repeat."""
        ...

    async def payload(self, job_id: str) -> bytes:
        """What its handler is given. `NotFoundError` if there is no such job."""
        ...

    async def find(self, query: JobQuery, cursor: str, size: int) -> Found:
        """Jobs that match, by creation. `InvalidArgumentError` for a cursor that this query never gave."""
        ...

    async def retry(self, job_id: str, request_id: str = "") -> str:
        """The id of a new job like one that has ended, naming it; `FailedPreconditionError` while it has not ended."""
        ...


@runtime_checkable
class ForgetApi(Protocol):
    """Where whoever has its result may take the job away, instead of leaving that to retention."""

    async def forget(self, job_id: str) -> None:
        """Neither job nor result is kept any longer. `FailedPreconditionError` while it has not ended."""
        ...


class WorkerView(msgspec.Struct, frozen=True):
    """One worker, as it last introduced itself."""

    worker_id: str
    types: list[str]
    queues: list[str]
    slots: int
    running: int
    is_draining: bool
    is_streaming: bool
    heard_ms_ago: int


class Stats(msgspec.Struct, frozen=True):
    """The whole system in numbers, at one instant."""

    position: int
    now_ms: int
    states: dict[str, int]
    bytes_held: int
    epoch: int
    cluster_id: str
    workers: int
    slots: int
    leases: int
    #: Where processes of the same machine may also ask.
    socket: str = ""
    #: Which of several nodes this is; 0 nodes: it is none of several.
    nodes: int = 0
    node_index: int = 0
    #: The size of held jobs above which submits are refused; 0: it is not known here.
    bytes_held_max: int = 0
    #: What an operator should look at, in sentences; empty while all is well.
    warnings: tuple[str, ...] = ()


class AdminApi(Protocol):
    """A capability: what operators ask for."""

    async def stats(self) -> Stats:
        """The numbers, all of them durable."""
        ...

    async def queues(self) -> list[QueueView]:
        """Every queue that has jobs or is not open, by name."""
        ...

    async def set_queue_mode(self, queue: str, mode: QueueMode, reason: str) -> None:
        """Durable when it returns; safe to repeat. What runs goes on."""
        ...

    async def purge(self, queue: str, reason: str) -> int:
        """Cancels what waits in the queue when this is called, and says how many; if it fails, some may be canceled."""
        ...

    async def workers(self) -> list[WorkerView]:
        """Every worker that is connected or was heard of lately."""
        ...

    async def drain_worker(self, worker_id: str) -> None:
        """Asks a worker to finish and end. `NotFoundError` if it is not connected; it may leave before it hears."""
        ...


class CapabilityApi(Protocol):
    """What every backend can be asked, whatever it lacks."""

    async def capabilities(self) -> Capabilities:
        """What the backend declares, and the version of whatever answers."""
        ...


class FeedPart(msgspec.Struct, frozen=True):
    """What happened, in order, and the position up to which everything was told."""

    entries: list[Entry]
    position: int


class HistoryApi(Protocol):
    """A capability: what happened to one job. A feed has it; some backends have it without a feed."""

    async def history(self, job_id: str) -> list[Entry]:
        """Everything that happened to a job, oldest first. `NotFoundError` if nothing is known about it."""
        ...


class FeedApi(HistoryApi, Protocol):
    """A capability: everything that happens, without a gap."""

    def feed(self, after: int | None) -> AsyncIterator[FeedPart]:
        """What is durable past this position (None: from now on), then what becomes so, for ever.

        `NotFoundError` if the journal no longer reaches back so far, or has not come so far yet.
        """
        ...


class ScheduleView(msgspec.Struct, frozen=True):
    """A schedule at one instant; times of what has not happened, or will not, are 0."""

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
    """A capability: jobs that are made by time."""

    async def set(self, spec: ScheduleSpec) -> ScheduleView:
        """Makes or replaces the schedule of this name; durable when it returns, safe to repeat."""
        ...

    async def get(self, name: str) -> ScheduleView:
        """`NotFoundError` if there is none."""
        ...

    async def all(self) -> list[ScheduleView]:
        """All of them, by name."""
        ...

    async def delete(self, name: str) -> None:
        """Durable when it returns. `NotFoundError` if there is none. Jobs that it made stay."""
        ...

    async def pause(self, name: str, *, is_paused: bool) -> ScheduleView:
        """Durable when it returns; safe to repeat. `NotFoundError` if there is none."""
        ...

    async def trigger(self, name: str) -> str:
        """The id of a job made now, whatever the overlap rule or a pause says. `NotFoundError` if there is none."""
        ...

    async def preview(self, spec: ScheduleSpec, after_ms: int, count: int) -> list[int]:
        """The next ticks after this instant (0: now); the schedule need not exist."""
        ...


class Assignment(msgspec.Struct, frozen=True, gc=False):
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
    #: How often the job is tried again after this attempt, if each of them fails; 0: this is the last one.
    retries_left: int = 0


class Introduction(msgspec.Struct, frozen=True):
    """Who a worker is, what it can run, and which leases it kept from a session before.

    `instance` tells this run of the worker's program from others under the same id. `dies_with_server` says that the
    worker's process ends whenever the process of the server does.
    """

    worker_id: str
    types: frozenset[str]
    queues: frozenset[str] = frozenset()
    slots: int = 1
    held: dict[int, str] = {}
    instance: str = ""
    dies_with_server: bool = False


class Directive(msgspec.Struct, frozen=True):
    """What a backend tells a worker. `reported` acknowledges reports up to that number as durable."""

    leases: list[Assignment] = []
    cancels: list[int] = []
    revoked: list[int] = []
    reported: int = 0
    lease_ms: int = 0
    heartbeat_ms: int = 0
    is_stopping: bool = False
    #: No lease that was granted before `drain` is on its way any more.
    is_drained: bool = False
    #: Somebody asks this worker to drain and end.
    is_drain_asked: bool = False
    #: The same as `is_drained` after a recall, where a session can take back the room that it has offered.
    is_recalled: bool = False
    #: In the first directive: a server that was away renews leases, so a worker that cannot reach it goes on.
    are_leases_renewed: bool = False
    #: In the first directive of a session whose backend lacks something; None: nothing is missing.
    capabilities: Capabilities | None = None


class WorkSession(Protocol):
    """One session. A method that raises has ended it: open another, naming what is still held."""

    async def next(self) -> Directive:
        """Waits for the next directive; the first one carries `lease_ms`, `heartbeat_ms` and `capabilities`."""
        ...

    async def want(self, count: int) -> None:
        """Adds room for this many more leases. If lost with the session, nothing was promised."""
        ...

    async def report(self, report_id: int, rows: Sequence[ReportRow]) -> None:
        """Sends outcomes; they are durable when `reported` reaches the number, and safe to send again before."""
        ...

    async def note(self, notes: Sequence[Note]) -> None:
        """What running attempts say of themselves. If lost with the session, nothing but the words is.

        A backend without `Capability.NOTES` drops them, and its first directive says so.
        """
        ...

    async def extend(self) -> None:
        """Extends every lease of this worker. If lost, the leases run out."""
        ...

    async def release(self, tokens: Collection[int]) -> None:
        """Hands leases back unrun. If lost, the leases run out."""
        ...

    async def drain(self) -> None:
        """No more leases, please; what is held is finished."""
        ...

    async def close(self) -> None:
        """Ends the session; leases still held go back at once. After an error it only frees what the session used."""
        ...


class WorkApi(Protocol):
    """Where a worker gets its work."""

    async def open(self, introduction: Introduction) -> WorkSession:
        """Begins a session. `UnavailableError` if nobody answers: try again later."""
        ...
