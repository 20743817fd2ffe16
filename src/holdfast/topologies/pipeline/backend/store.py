"""The store port: the database operations of the pipeline's roles. `postgres/` implements it.

Every method is one transaction, unless its docstring says otherwise. Only the store's clock is used: no method takes
the current time. After `UnavailableError` it is unknown whether a change was made; every change is safe to repeat.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Annotated, Protocol

import msgspec

from holdfast.core.commands import CancelReply, Heard, ReportRow, Submitted
from holdfast.core.history import Entry
from holdfast.core.lifecycle import State
from holdfast.core.model import QueueMode, Template
from holdfast.core.overview import QueueView
from holdfast.ports import Assignment, JobDraft, JobQuery, JobView, Page, ResultView, ScheduleApi, SearchPage

#: A number that fits into a bigint column; messages with other numbers are refused.
Number = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


#: A heartbeat does not extend a lease that has used less than this part of its time, because heartbeats are frequent.
UNMOVED_PART = 0.25


class Ticket(msgspec.Struct, frozen=True, gc=False):
    """A job on its way to a worker: the fields for routing, which do no harm if they are outdated."""

    job_id: str
    #: The type that a worker must know.
    route: str
    queue: str
    priority: Number
    #: The position in submit order.
    number: Number
    #: How often the row was claimed, including this time.
    deliveries: Number
    #: When the job could first have run; a job that is due earlier comes first.
    due_ms: Number = 0
    #: How long the job had waited when it was claimed.
    waited_ms: Number = 0

    @property
    def order(self) -> int:
        """The sort key within a lane and priority; the smallest comes first."""
        return (self.due_ms << 64) + self.number


#: A queue, a type, and whether priorities above the default are meant, which have queue processes of their own.
FullLane = tuple[str, str, bool]


class WorkerKind(msgspec.Struct, frozen=True, order=True):
    """The routes and queues of a worker; no queues means all."""

    routes: tuple[str, ...]
    queues: tuple[str, ...] = ()


class StateFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that explain a job's state, by the store's clock; 0: not claimed, not leased, or the queue is open."""

    view: JobView
    now_ms: int
    claimed_ms: int
    visible_ms: int
    lease_until_ms: int
    mode: QueueMode
    mode_reason: str
    mode_since_ms: int


class JobStore(Protocol):
    """Jobs as clients see them; used by schedulers."""

    async def insert(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Inserts all drafts that are not refused; a used request id or unique key returns the first job."""
        ...

    async def get(self, job_id: str) -> JobView:
        """Raises `NotFoundError` if there is no such job."""
        ...

    async def result(self, job_id: str) -> ResultView:
        """Raises `NotFoundError` if there is no such job."""
        ...

    async def payload(self, job_id: str) -> bytes:
        """Raises `NotFoundError` if there is no such job."""
        ...

    async def history(self, job_id: str) -> list[Entry]:
        """Returns the job's history, oldest first. Raises `NotFoundError` if there is no such job."""
        ...

    async def standing(self, job_id: str) -> StateFacts:
        """Returns the facts for `explain`. Raises `NotFoundError` if there is no such job."""
        ...

    async def cancel(self, job_id: str, reason: str) -> CancelReply:
        """Ends a QUEUED row, marks a RUNNING one."""
        ...

    async def page(self, states: Collection[State], offset: int, size: int, *, newest_first: bool) -> Page:
        """Returns jobs in the order of creation; ids ascend within a millisecond."""
        ...

    async def find(self, query: JobQuery, cursor: str, size: int) -> SearchPage:
        """Returns jobs in the order of creation. Raises `InvalidArgumentError` for a cursor of another query."""
        ...

    async def versions(self, job_ids: Collection[str]) -> Mapping[str, int]:
        """Returns a number for each job that exists; it grows with each change of the job."""
        ...

    async def ended(self, job_ids: Collection[str]) -> Mapping[str, tuple[JobView, ResultView]]:
        """Returns the jobs that have ended, with their results."""
        ...

    def changes(self) -> AsyncIterator[Collection[str]]:
        """Yields ids of jobs that have just changed; an empty collection means that any may have changed.

        Ends with `UnavailableError` when the connection is lost.
        """
        ...


class ClaimStore(Protocol):
    """Claims of visible rows, expired leases and old jobs; used by watchers."""

    async def claim(
        self, count: int, visibility_ms: int, kinds: Collection[WorkerKind], full: Collection[FullLane]
    ) -> list[Ticket]:
        """Claims visible rows that these kinds of workers could run, but none of a full lane or a paused queue.

        High priorities come first, then early due times, then low numbers. A minute of waiting counts as one step of
        priority, so that no job waits for ever.
        """
        ...

    async def unclaim(self, job_ids: Collection[str], delay_ms: int) -> None:
        """Makes claimed rows visible again after `delay_ms`; rows that are not claimed any more are left alone."""
        ...

    async def expire(self, count: int) -> int:
        """Takes back up to `count` expired leases, and returns their number."""
        ...

    async def retire(self, count: int, *, retain_ms: int, retain_failed_ms: int) -> int:
        """Deletes up to `count` jobs that ended more than `retain_ms` ago, or `retain_failed_ms` if they FAILED."""
        ...

    async def next_visible_ms(self) -> int | None:
        """Returns the time until the next hidden row becomes visible; None if there is none."""
        ...

    def due(self) -> AsyncIterator[bool]:
        """Yields when rows may have become visible early; True if queues or workers may have changed, too.

        Ends with `UnavailableError` when the connection is lost.
        """
        ...


class LeaseStore(Protocol):
    """Leases; used by workers."""

    async def arrive(
        self, worker: str, held: Mapping[int, str], lease_ms: int, *, session: str, is_spent: bool = True
    ) -> list[int]:
        """Extends the leases in `held` that are still valid, takes back the worker's others, returns the valid tokens.

        Begins a session of the worker: from now on an earlier session cannot be declared lost.
        """
        ...

    async def start(self, worker: str, job_ids: Collection[str], lease_ms: int) -> list[Assignment]:
        """Grants the jobs that are QUEUED, due and in no paused queue, and returns them in submit order."""
        ...

    async def extend(self, worker: str, tokens: Collection[int], lease_ms: int) -> Heard:
        """Returns which leases are valid, at least for all but `UNMOVED_PART` of `lease_ms`, and which are canceled."""
        ...

    async def report(self, worker: str, rows: Sequence[ReportRow]) -> list[str]:
        """Returns for each row an empty string, or the reason why it is refused."""
        ...

    async def release(self, worker: str, tokens: Collection[int], *, is_spent: bool) -> None:
        """Returns the jobs to QUEUED, visible at once; with `is_spent` each counts as a loss."""
        ...

    async def live(self, worker: str, session: str) -> None:
        """Records that the worker is alive in this session; used while its coordinator cannot record it."""
        ...


class Leadership(msgspec.Struct, frozen=True):
    """The right to fire ticks, until another scheduler has a higher epoch."""

    holder: str
    epoch: int


class ScheduleStore(ScheduleApi, Protocol):
    """Schedules, and the leadership of the scheduler that fires them."""

    async def lead(self, holder: str, lease_ms: int) -> Leadership | None:
        """Takes or extends the leadership; None while another scheduler has it."""
        ...

    async def resign(self, leadership: Leadership) -> None:
        """Ends the leadership, so that another scheduler can take it before the lease expires."""
        ...

    async def tick(self, leadership: Leadership) -> str:
        """Fires, skips or passes over the earliest tick that is due, and returns which; empty if none is due.

        Raises `FailedPreconditionError` (NOT_LEADING) and changes nothing if the leadership has ended.
        """
        ...

    async def next_due_ms(self) -> int | None:
        """Returns the time until the earliest tick; None if there is none."""
        ...


class QueueAssignment(msgspec.Struct, frozen=True):
    """A worker and its queue processes, as its coordinator last saved them."""

    worker: str
    session: str
    kind: WorkerKind
    slots: int
    queues: tuple[str, ...]
    heard_ms_ago: int = 0
    is_draining: bool = False


class WorkerStore(Protocol):
    """Workers and their queue processes; written by coordinators, read by watchers and schedulers."""

    async def save(self, places: Sequence[QueueAssignment]) -> None:
        """Creates or replaces these places; their workers were last heard from `heard_ms_ago`, or later.

        The place of a worker that is in another session is not changed.
        """
        ...

    async def remove(self, workers: Collection[str]) -> None:
        """Removes the places of workers that have left."""
        ...

    async def lose(self, worker: str, session: str, silent_ms: int) -> bool:
        """Takes back all leases of a worker, each counted as a loss, and removes its place.

        Returns False and changes nothing if the worker was heard from within `silent_ms`, or is in another session.
        """
        ...

    async def all(self) -> list[QueueAssignment]:
        """Returns all places, by worker."""
        ...

    async def leases(self) -> Mapping[str, int]:
        """Returns the number of running jobs of each worker that has any."""
        ...

    async def ask_to_drain(self, worker: str) -> None:
        """Marks the worker as draining; its coordinator notifies it. Raises `NotFoundError` if it has no place."""
        ...


class QueueStore(Protocol):
    """Queues as operators see them; used by schedulers."""

    async def queues(self) -> list[QueueView]:
        """Returns every queue that has jobs or is not open, by name."""
        ...

    async def set_mode(self, queue: str, mode: QueueMode, reason: str) -> None:
        """Sets the mode durably. On return, a draining queue accepts no jobs, and jobs of a resumed one are visible."""
        ...

    async def purge(self, queue: str, reason: str) -> int:
        """Cancels the waiting jobs in several transactions, and returns their number."""
        ...

    async def states(self) -> Mapping[State, int]:
        """Returns the number of jobs in each state."""
        ...

    async def now_ms(self) -> int:
        """Returns the store's time."""
        ...


class Store(Protocol):
    """One database. Its parts may be used from many tasks concurrently."""

    @property
    def rows(self) -> JobStore: ...
    @property
    def claims(self) -> ClaimStore: ...
    @property
    def leases(self) -> LeaseStore: ...
    @property
    def schedules(self) -> ScheduleStore: ...
    @property
    def workers(self) -> WorkerStore: ...
    @property
    def queues(self) -> QueueStore: ...

    async def cluster_id(self) -> str:
        """Returns the permanent id of this database."""
        ...

    async def close(self) -> None:
        """Closes every connection."""
        ...
