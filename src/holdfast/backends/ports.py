"""The two ports that every backend implements, and the values that cross them.

`JobApi` is what a gateway needs, `WorkApi` what the worker runtime needs. A method either does what its sentence says
or raises a `HoldfastError`; after `UnavailableError` or `DeadlineExceededError` of a submit it is unknown whether the
job exists, and repeating it under the same request id finds out. Capabilities beyond these (schedules, the event
feed, history, administration) get ports of their own; a backend that lacks one says so.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Protocol

import msgspec

from holdfast.core.commands import CancelReply, ReportRow, Submitted
from holdfast.core.lifecycle import State
from holdfast.core.model import Extra, Template


class JobDraft(msgspec.Struct, frozen=True):
    """A job that somebody wants accepted. It is due after `delay_ms` or at `not_before_ms`, whichever is later."""

    template: int = 0
    payload: bytes = b""
    delay_ms: int = 0
    not_before_ms: int = 0
    extra: Extra | None = None


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


class Introduction(msgspec.Struct, frozen=True):
    """Who a worker is, what it can run, and which leases it kept from a session before."""

    worker_id: str
    types: frozenset[str]
    queues: frozenset[str] = frozenset()
    slots: int = 1
    held: dict[int, str] = {}


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


class WorkSession(Protocol):
    """One session. A method that raises has ended it: open another, naming what is still held."""

    async def next(self) -> Directive:
        """Waits for the next directive; the first one carries `lease_ms` and `heartbeat_ms`."""
        ...

    async def want(self, count: int) -> None:
        """Adds room for this many more leases. If lost with the session, nothing was promised."""
        ...

    async def report(self, report_id: int, rows: Sequence[ReportRow]) -> None:
        """Sends outcomes; they are durable when `reported` reaches the number, and safe to send again before."""
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
        """Ends the session; leases still held go back at once."""
        ...


class WorkApi(Protocol):
    """Where a worker gets its work."""

    async def open(self, introduction: Introduction) -> WorkSession:
        """Begins a session. `UnavailableError` if nobody answers: try again later."""
        ...
