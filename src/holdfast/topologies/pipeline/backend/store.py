"""The store port: what the pipeline's roles ask of a database. `postgres/` is one that gives it.

Every method is one transaction, or several where its sentence says so. The store's clock is the only one: no method
takes an instant. After `UnavailableError` it is unknown whether a change was made; every change is safe to repeat.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Annotated, Protocol

import msgspec

from holdfast.core.commands import CancelReply, Heard, ReportRow, Submitted
from holdfast.core.history import Entry
from holdfast.core.lifecycle import State
from holdfast.core.model import QueueMode, ScheduleSpec, Template
from holdfast.core.overview import QueueView
from holdfast.ports import Assignment, Found, JobDraft, JobQuery, JobView, Page, ResultView, ScheduleView

#: What a column of the database holds, and every message; other numbers are refused where they come in.
Number = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


#: Heartbeats are many: a lease that lacks less than this part of its time is not extended by one.
UNMOVED_PART = 0.25


class Ticket(msgspec.Struct, frozen=True, gc=False):
    """A job on its way to a worker: what routing needs, and nothing that could be out of date and matter."""

    job_id: str
    #: The type that a worker must know.
    route: str
    queue: str
    priority: Number
    #: Its place in submit order.
    number: Number
    #: How often it was claimed, this time included.
    deliveries: Number
    #: When it was first to be run: what is due earlier has its place before what is due later.
    due_ms: Number = 0
    #: For how long it had been waiting when it was claimed.
    waited_ms: Number = 0

    @property
    def order(self) -> int:
        """Its place among others of its lane and priority, the smallest first."""
        return (self.due_ms << 64) + self.number


#: A queue, a type, and whether what is above the default priority is meant: that goes to queue processes of its own.
FullLane = tuple[str, str, bool]


class WorkerKind(msgspec.Struct, frozen=True, order=True):
    """What a worker takes: these routes, from these queues or, if none is named, from all."""

    routes: tuple[str, ...]
    queues: tuple[str, ...] = ()


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job stands, by the store's clock; 0 stands for what is not: claimed, leased, or anything but open."""

    view: JobView
    now_ms: int
    claimed_ms: int
    visible_ms: int
    lease_until_ms: int
    mode: QueueMode
    mode_reason: str
    mode_since_ms: int


class Rows(Protocol):
    """Jobs as clients see them; schedulers use it."""

    async def insert(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """All that are not refused, in one transaction; under a request id or a unique key the first one is found."""
        ...

    async def get(self, job_id: str) -> JobView:
        """`NotFoundError` if there is none."""
        ...

    async def result(self, job_id: str) -> ResultView:
        """`NotFoundError` if there is none."""
        ...

    async def payload(self, job_id: str) -> bytes:
        """`NotFoundError` if there is none."""
        ...

    async def history(self, job_id: str) -> list[Entry]:
        """All that happened to a job, oldest first. `NotFoundError` if there is none."""
        ...

    async def standing(self, job_id: str) -> Standing:
        """What `explain` is told from. `NotFoundError` if there is none."""
        ...

    async def cancel(self, job_id: str, reason: str) -> CancelReply:
        """Ends a QUEUED row, marks a RUNNING one."""
        ...

    async def page(self, states: Collection[State], offset: int, size: int, *, newest_first: bool) -> Page:
        """By creation, ids ascending within a millisecond."""
        ...

    async def find(self, query: JobQuery, cursor: str, size: int) -> Found:
        """By creation; `InvalidArgumentError` for a cursor that this query never gave."""
        ...

    async def versions(self, job_ids: Collection[str]) -> Mapping[str, int]:
        """A number that grows with each change of a job, for those that exist; for whoever waits for changes."""
        ...

    async def ended(self, job_ids: Collection[str]) -> Mapping[str, tuple[JobView, ResultView]]:
        """Those of them that have ended, and how."""
        ...

    def changes(self) -> AsyncIterator[Collection[str]]:
        """Ids of jobs that have just changed; empty: any may have. Ends with `UnavailableError` when it is deaf."""
        ...


class Claims(Protocol):
    """Rows that should be on their way; watchers use it."""

    async def claim(
        self, count: int, visibility_ms: int, kinds: Collection[WorkerKind], full: Collection[FullLane]
    ) -> list[Ticket]:
        """Takes visible rows that these kinds of workers could run, but none of a full lane.

        Nothing of a paused queue. High priorities first, then by due time, then in submit order; but a minute of
        waiting counts as one step of priority, so that nothing waits for ever.
        """
        ...

    async def unclaim(self, job_ids: Collection[str], delay_ms: int) -> None:
        """Makes rows that could not be handed on visible again after so long; those that moved on are left alone."""
        ...

    async def expire(self, count: int) -> int:
        """Takes leases back that ran out, and says how many."""
        ...

    async def retire(self, count: int, *, retain_ms: int, retain_failed_ms: int) -> int:
        """Forgets up to so many jobs that ended longer ago than this, those that FAILED by their own time."""
        ...

    async def next_visible_ms(self) -> int | None:
        """How long until a row becomes visible that is not yet; None: none will."""
        ...

    def due(self) -> AsyncIterator[bool]:
        """Yields when rows may have become visible early, and whether anything else may have changed, too.

        Ends with `UnavailableError` when it is deaf.
        """
        ...


class Runs(Protocol):
    """Leases; workers use it."""

    async def arrive(
        self, worker: str, held: Mapping[int, str], lease_ms: int, *, session: str, is_spent: bool = True
    ) -> list[int]:
        """Extends what is held and still this worker's, gives back all else of it, and returns the tokens that hold.

        From now on the worker is in this session: an earlier one of the same name can no longer be lost.
        """
        ...

    async def start(self, worker: str, job_ids: Collection[str], lease_ms: int) -> list[Assignment]:
        """The right to run, for each that is QUEUED, due and in no paused queue, in submit order; no others."""
        ...

    async def extend(self, worker: str, tokens: Collection[int], lease_ms: int) -> Heard:
        """Which of these hold, for all but `UNMOVED_PART` of the time at least, and which should be stopped."""
        ...

    async def report(self, worker: str, rows: Sequence[ReportRow]) -> list[str]:
        """For each an empty string, or why it does not count."""
        ...

    async def release(self, worker: str, tokens: Collection[int], *, is_spent: bool) -> None:
        """Back to QUEUED and visible at once; spent ones cost a loss."""
        ...

    async def live(self, worker: str, session: str) -> None:
        """A worker is there still, in this session, although its coordinator cannot say so."""
        ...


class Leadership(msgspec.Struct, frozen=True):
    """The right to fire ticks, as long as nobody else has a higher epoch."""

    holder: str
    epoch: int


class Plans(Protocol):
    """Schedules and who fires them; schedulers use it."""

    async def set(self, spec: ScheduleSpec) -> ScheduleView:
        """As `ScheduleApi` says; so the rest."""
        ...

    async def get(self, name: str) -> ScheduleView: ...
    async def all(self) -> list[ScheduleView]: ...
    async def delete(self, name: str) -> None: ...
    async def pause(self, name: str, *, is_paused: bool) -> ScheduleView: ...
    async def trigger(self, name: str) -> str: ...

    async def lead(self, holder: str, lease_ms: int) -> Leadership | None:
        """Takes or extends the leadership; None while somebody else has it."""
        ...

    async def resign(self, leadership: Leadership) -> None:
        """So that nobody has to wait for the lease to run out."""
        ...

    async def tick(self, leadership: Leadership) -> str:
        """Fires, skips or passes over the earliest tick that is due, and says which; empty: there was none.

        `FailedPreconditionError` (NOT_LEADING) if the leadership is over: nothing happened.
        """
        ...

    async def next_due_ms(self) -> int | None:
        """How long until the earliest tick; None: there is none."""
        ...

    async def now_ms(self) -> int:
        """The store's clock, for who asks what would be."""
        ...


class QueueAssignment(msgspec.Struct, frozen=True):
    """Where a worker takes its tickets from, as its coordinator last said."""

    worker: str
    session: str
    kind: WorkerKind
    slots: int
    queues: tuple[str, ...]
    heard_ms_ago: int = 0
    is_draining: bool = False


class Places(Protocol):
    """Workers and their queue processes; the coordinator writes it, watchers and schedulers read it."""

    async def save(self, places: Sequence[QueueAssignment]) -> None:
        """Make or replace these; their workers were heard of `heard_ms_ago`, or later.

        The place of a worker that is in another session is left as it is.
        """
        ...

    async def remove(self, workers: Collection[str]) -> None:
        """They are gone."""
        ...

    async def lose(self, worker: str, session: str, silent_ms: int) -> bool:
        """Take all leases of a worker back, each counted as a loss, and remove its place.

        False, and nothing happened, if the worker was heard of within `silent_ms`, or is in another session by now.
        """
        ...

    async def all(self) -> list[QueueAssignment]:
        """By worker."""
        ...

    async def leases(self) -> Mapping[str, int]:
        """How many jobs each worker runs, for those that run any."""
        ...

    async def ask_to_drain(self, worker: str) -> None:
        """`NotFoundError` if it is not there; its coordinator tells it."""
        ...


class QueueBook(Protocol):
    """Queues as operators see them; schedulers use it."""

    async def queues(self) -> list[QueueView]:
        """Every queue that has jobs or is not open, by name."""
        ...

    async def set_mode(self, queue: str, mode: QueueMode, reason: str) -> None:
        """Durable when it returns: a queue that drains takes nothing more, and what a pause held up is visible."""
        ...

    async def purge(self, queue: str, reason: str) -> int:
        """Cancels what waits, in several transactions, and says how many."""
        ...

    async def states(self) -> Mapping[State, int]:
        """How many jobs there are of each state."""
        ...

    async def now_ms(self) -> int:
        """The store's clock."""
        ...


class Store(Protocol):
    """One database. Parts of it may be used from many tasks at a time."""

    @property
    def rows(self) -> Rows: ...
    @property
    def claims(self) -> Claims: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def plans(self) -> Plans: ...
    @property
    def places(self) -> Places: ...
    @property
    def queue_book(self) -> QueueBook: ...

    async def cluster_id(self) -> str:
        """What this database calls itself, for ever."""
        ...

    async def close(self) -> None:
        """Ends every connection."""
        ...
