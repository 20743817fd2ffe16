"""`JobApi` over a coordinator in this process."""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import TypeVar, cast

from holdfast.backends.ports import Explanation, JobDraft, JobView, Page, ResultView
from holdfast.coordinator.loop import Coordinator, Lane, Read
from holdfast.core import commands
from holdfast.core.commands import AnyCommand, CancelReply, Refusal, Submitted
from holdfast.core.events import AnyEvent
from holdfast.core.ledger import Ledger
from holdfast.core.lifecycle import CANCELED, TERMINAL, State
from holdfast.core.model import Job, NewJob, Now, Template
from holdfast.core.owner import mint
from holdfast.core.tasks import unknown_job
from holdfast.core.why import why
from holdfast.core.workers import WorkerInfo
from holdfast.errors import error_class

T = TypeVar("T")
Mint = Callable[[int], list[str]]


class RandomPool:
    """The kernel's randomness, drawn in large pieces: a system call for every id costs more than the id."""

    __slots__ = ("_offset", "_pool")

    def __init__(self) -> None:
        self._pool = b""
        self._offset = 0

    def __call__(self, size: int) -> bytes:
        """As many random bytes, none of them given out twice."""
        if self._offset + size > len(self._pool):
            self._pool, self._offset = os.urandom(max(size, _POOL_BYTES)), 0
        start, self._offset = self._offset, self._offset + size
        return self._pool[start : self._offset]


_POOL_BYTES = 16_384


def random_minter() -> Mint:
    """Mints ids that belong to no node in particular."""
    pool = RandomPool()
    return lambda count: mint(pool, count)


class Caller:
    """Turns the coordinator's callbacks into awaits, and refusals into errors."""

    __slots__ = ("_coordinator", "_loop")

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._loop = asyncio.get_running_loop()

    async def call(self, lane: Lane, command: AnyCommand) -> object:
        """The reply to a command, once durable."""
        future = self._loop.create_future()
        self._coordinator.call(lane, command, _settler(future))
        return _unwrap(await future)

    async def read(self, lane: Lane, query: Read) -> object:
        """The answer to a query, once all that it saw is durable."""
        future = self._loop.create_future()
        self._coordinator.read(lane, query, _settler(future))
        return _unwrap(await future)


def _settler(future: asyncio.Future[object]) -> Callable[[object], None]:
    def settle(reply: object) -> None:
        if not future.done():  # whoever asked may have given up
            future.set_result(reply)

    return settle


def _unwrap(reply: object) -> object:
    if isinstance(reply, Refusal):
        raise error_class(reply.code)(reply.message, reason=reply.reason)
    return reply


#: A canceled job says why in its summary, even where neither the canceller nor the worker did.
_UNEXPLAINED: dict[int, str] = {CANCELED: "canceled; no reason was given"}


class LedgerJobs:
    """What clients ask for, answered by the ledger."""

    def __init__(
        self,
        coordinator: Coordinator,
        workers: Callable[[], Sequence[WorkerInfo]] = list,
        mint_ids: Mint | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._caller = Caller(coordinator)
        self._workers = workers
        self._mint = mint_ids or random_minter()
        self._watches = _Watches()
        coordinator.observers.append(self._watches)

    async def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """One command, one event, one sync for all of them."""
        now_ms = self._coordinator.time.now().log_ms
        jobs = [
            NewJob(job_id, draft.template, draft.payload, _due_ms(draft, now_ms), draft.extra)
            for job_id, draft in zip(self._mint(len(drafts)), drafts, strict=True)
        ]
        reply = await self._caller.call(Lane.SUBMIT, commands.Submit(list(templates), jobs))
        return cast("Submitted", reply)

    async def get(self, job_id: str) -> JobView:
        """The job at one instant, all of it durable."""

        def query(ledger: Ledger, _: Now) -> object:
            job = ledger.job(job_id)
            return unknown_job(job_id) if job is None else view(job)

        return cast("JobView", await self._caller.read(Lane.SUBMIT, query))

    async def result(self, job_id: str) -> ResultView:
        """State and result together, so that they cannot disagree."""

        def query(ledger: Ledger, _: Now) -> object:
            job = ledger.job(job_id)
            if job is None:
                return unknown_job(job_id)
            result = job.result
            if result is None:
                return ResultView(State(job.state))
            summary = result.summary or result.failure_reason or _UNEXPLAINED.get(job.state, "")
            return ResultView(State(job.state), result.output, summary, result.runtime_ms)

        return cast("ResultView", await self._caller.read(Lane.SUBMIT, query))

    async def cancel(self, job_id: str, reason: str) -> CancelReply:
        """Decided in one place with grants and reports, so exactly one of them wins."""
        reply = await self._caller.call(Lane.SUBMIT, commands.Cancel(job_id, reason))
        return cast("CancelReply", reply)

    async def page(self, states: Collection[State], offset: int, size: int, *, newest_first: bool) -> Page:
        """One slice of the listing; the loop serves others between slices."""

        def query(ledger: Ledger, _: Now) -> object:
            jobs, has_more = ledger.page(frozenset(states), offset, size, newest_first=newest_first)
            return Page([view(job) for job in jobs], has_more)

        return cast("Page", await self._caller.read(Lane.LIST, query))

    async def explain(self, job_id: str) -> Explanation:
        """From the state and from what workers have said of themselves, at one instant."""

        def query(ledger: Ledger, now: Now) -> object:
            job = ledger.job(job_id)
            if job is None:
                return unknown_job(job_id)
            reason, sentence = why(ledger, job, self._workers(), now)
            return Explanation(State(job.state), reason, sentence)

        return cast("Explanation", await self._caller.read(Lane.SUBMIT, query))

    async def watch(self, job_id: str) -> AsyncIterator[JobView]:
        """The job now and after each durable change, until it is terminal."""
        changed = self._watches.add(job_id)
        try:
            while True:
                changed.clear()
                job = await self.get(job_id)
                yield job
                if job.state in TERMINAL:
                    return
                await changed.wait()
        finally:
            self._watches.remove(job_id, changed)


def _due_ms(draft: JobDraft, now_ms: int) -> int:
    return max(draft.not_before_ms, now_ms + draft.delay_ms if draft.delay_ms else 0)


def view(job: Job) -> JobView:
    """What clients may see of a job, frozen."""
    return JobView(
        job.id,
        job.template,
        State(job.state),
        job.created_ms,
        job.started_ms,
        job.finished_ms,
        job.not_before_ms,
        job.cancel_requested,
        job.result.failure_reason if job.result else "",
        job.attempts,
        job.extra,
    )


class _Watches:
    """Wakes those who watch a job when something about it has become durable. Free while nobody watches."""

    def __init__(self) -> None:
        self._events: dict[str, list[asyncio.Event]] = {}
        self._touched: deque[tuple[int, str]] = deque()

    def add(self, job_id: str) -> asyncio.Event:
        changed = asyncio.Event()
        self._events.setdefault(job_id, []).append(changed)
        return changed

    def remove(self, job_id: str, changed: asyncio.Event) -> None:
        waiting = self._events[job_id]
        waiting.remove(changed)
        if not waiting:
            del self._events[job_id]

    def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
        if self._events:
            self._touched += [(position, job.id) for job, _ in ledger.book.moves if job.id in self._events]

    def durable(self, position: int) -> None:
        while self._touched and self._touched[0][0] <= position:
            _, job_id = self._touched.popleft()
            for changed in self._events.get(job_id, ()):
                changed.set()

    def bug(self, command: object, error: Exception) -> None:
        """Not a watcher's concern."""
