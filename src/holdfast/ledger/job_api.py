"""`JobApi` over a coordinator in this process."""

from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence
from typing import cast

from holdfast import limits
from holdfast.core import commands
from holdfast.core.commands import CancelReply, Refusal, Submitted
from holdfast.core.explanation import why
from holdfast.core.ledger import Ledger
from holdfast.core.lifecycle import TERMINAL, State
from holdfast.core.listing import Place
from holdfast.core.model import Extra, JobRecord, NewJob, Now, Template
from holdfast.core.progress import ProgressBoard
from holdfast.core.tasks import unknown_job
from holdfast.core.workers import WorkerInfo
from holdfast.errors import InvalidArgumentError
from holdfast.ledger.coordinator import STOPPING, CommandLane, Coordinator, Read
from holdfast.ledger.coordinator_calls import CoordinatorCaller
from holdfast.ledger.group_commit import Done
from holdfast.ledger.job_ids import Mint, random_minter
from holdfast.ledger.manual_retry import refusal_to_repeat, repeated
from holdfast.ledger.search import cursor_of, place_of, wanted_by
from holdfast.ledger.views import job_view, result_view
from holdfast.ledger.waiters import Settled, Waiters
from holdfast.ports import Explanation, JobDraft, JobQuery, JobView, Page, ResultView, SearchPage

#: The number of slices that one call of `find` reads at most; it then returns the jobs found so far.
_FIND_SLICES_MAX = 20

#: A query about one job, at one instant.
About = Callable[[Ledger, JobRecord, Now], object]


class LedgerJobs:
    """Operations for clients, on the ledger."""

    def __init__(
        self,
        coordinator: Coordinator,
        workers: Callable[[], Sequence[WorkerInfo]] = list,
        mint_ids: Mint | None = None,
        *,
        progress: ProgressBoard | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._caller = CoordinatorCaller(coordinator)
        self._workers = workers
        self._progress = progress
        self._mint = mint_ids or random_minter()
        self._waiters = Waiters()
        coordinator.observers.append(self._waiters)

    def fresh_id(self) -> str:
        """Returns a new id, for a job that another component creates."""
        return self._mint(1)[0]

    def close(self) -> None:
        """Fails all waits for jobs with STOPPING, because the coordinator stops; clients retry at another server."""
        self._waiters.close(STOPPING.error())

    async def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Submits all drafts with one command, one event and one sync."""
        return cast("Submitted", await self._caller.awaited(lambda done: self.submit_then(templates, drafts, done)))

    def submit_then(self, templates: Sequence[Template], drafts: Sequence[JobDraft], done: Done) -> None:
        """Submits without awaiting: calls `done` with the reply or a refusal, on the coordinator's thread."""
        self._coordinator.call(CommandLane.SUBMIT, self._submission(templates, drafts), done)

    def _submission(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> commands.Submit:
        jobs: list[NewJob] = []
        fresh: Iterator[str] | None = None
        now_ms, are_ids_given = 0, False
        for draft in drafts:
            job_id, due_ms = draft.id, draft.not_before_ms
            if job_id:
                are_ids_given = True
            else:
                fresh = fresh or iter(self._mint(len(drafts) - len(jobs)))
                job_id = next(fresh)
            if draft.delay_ms:
                now_ms = now_ms or self._coordinator.time.now().log_ms
                due_ms = max(due_ms, now_ms + draft.delay_ms)
            jobs.append(NewJob(job_id, draft.template, draft.payload, due_ms, draft.extra))
        return commands.Submit(list(templates), jobs, are_ids_given)

    def _view(self, ledger: Ledger, job: JobRecord) -> JobView:
        return job_view(ledger, job, self._progress)

    async def get(self, job_id: str) -> JobView:
        """Returns the job at one instant, when that state is durable."""
        return cast("JobView", await self._ask(job_id, lambda ledger, job, _: self._view(ledger, job)))

    async def result(self, job_id: str) -> ResultView:
        """Returns state and result of one instant, so that they are consistent."""
        return cast("ResultView", await self._ask(job_id, lambda _ledger, job, _now: result_view(job)))

    async def payload(self, job_id: str) -> bytes:
        """Returns the payload as it was submitted."""
        return cast("bytes", await self._ask(job_id, lambda _ledger, job, _now: job.payload))

    async def explain(self, job_id: str) -> Explanation:
        """Explains the job's state, from the ledger and the registered workers at one instant."""

        def about(ledger: Ledger, job: JobRecord, now: Now) -> object:
            reason, sentence = why(ledger, job, self._workers(), now)
            return Explanation(State(job.state), reason, sentence)

        return cast("Explanation", await self._ask(job_id, about))

    async def _ask(self, job_id: str, about: About) -> object:
        return await self._caller.read(CommandLane.SUBMIT, self._query(job_id, about))

    def _query(self, job_id: str, about: About) -> Read:
        def query(ledger: Ledger, now: Now) -> object:
            job = ledger.job(job_id)
            return self._missing(job_id) if job is None else about(ledger, job, now)

        return query

    def _missing(self, job_id: str) -> Refusal:
        """Returns the refusal for a job that this ledger does not have."""
        return unknown_job(job_id)

    async def cancel(self, job_id: str, reason: str) -> CancelReply:
        """Cancels a job. The coordinator decides it in order with grants and reports, so exactly one of them wins."""
        reply = await self._caller.call(CommandLane.SUBMIT, commands.Cancel(job_id, reason))
        return cast("CancelReply", reply)

    async def page(self, states: Collection[State], offset: int, size: int, *, newest_first: bool) -> Page:
        """Returns one page of the listing, read in one turn of the coordinator."""

        def query(ledger: Ledger, _: Now) -> object:
            jobs, has_more = ledger.page(frozenset(states), offset, size, newest_first=newest_first)
            return Page([self._view(ledger, job) for job in jobs], has_more)

        return cast("Page", await self._caller.read(CommandLane.LIST, query))

    async def watch(self, job_id: str) -> AsyncGenerator[JobView, None]:
        """Yields the job now and after each durable change, until it is terminal."""
        changed = self._waiters.watch(job_id)
        try:
            while True:
                changed.clear()
                job = await self.get(job_id)
                yield job
                if job.state in TERMINAL:
                    return
                self._waiters.refuse_if_closed()
                await changed.wait()
                self._waiters.refuse_if_closed()
        finally:
            self._waiters.unwatch(job_id, changed)

    async def settled(self, job_id: str) -> Settled:
        """Waits for the event that ends the job; a running job costs the coordinator no queries."""
        return cast("Settled", await self._caller.awaited(lambda done: self.settled_then(job_id, done)))

    def settled_then(self, job_id: str, done: Done) -> Callable[[], None]:
        """Calls `done` with the job and its result once it has ended; returns a function that gives the wait up."""
        job = self._coordinator.ledger.job(job_id)
        if job is None or job.state in TERMINAL:  # perhaps not durable yet: a read waits for that
            self._coordinator.read(CommandLane.SUBMIT, self._query(job_id, _end), done)
            return _nothing
        return self._waiters.end_then(job_id, done)

    async def find(self, query: JobQuery, cursor: str, size: int) -> SearchPage:
        """Searches the listing in slices; the coordinator handles other commands in between."""
        if size < 1:
            message = f"the page size must be at least 1, got {size}"
            raise InvalidArgumentError(message, reason="PAGE_SIZE_INVALID")
        place, found = place_of(query, cursor), list[JobView]()
        size = min(size, limits.PAGE_SIZE_MAX)
        for _ in range(_FIND_SLICES_MAX):
            jobs, place = await self._scan(query, place, size - len(found))
            found += jobs
            if place is None or len(found) == size:
                break
        return SearchPage(found, cursor_of(query, place))

    async def _scan(self, query: JobQuery, after: Place | None, size: int) -> tuple[list[JobView], Place | None]:
        """Reads one slice of the listing, when that state is durable."""

        def read(ledger: Ledger, _: Now) -> object:
            jobs, place = ledger.scan(
                query.states,
                after,
                size,
                newest_first=not query.oldest_first,
                wants=wanted_by(query),
                created_from_ms=query.created_from_ms,
                created_before_ms=query.created_before_ms,
            )
            return [self._view(ledger, job) for job in jobs], place

        return cast("tuple[list[JobView], Place | None]", await self._caller.read(CommandLane.LIST, read))

    async def retry(self, job_id: str, request_id: str = "") -> str:
        """Submits the job again with the same template, payload, labels and headers; idempotent with a request id."""
        template, payload, extra = cast("_Again", await self._ask(job_id, _again))
        submitted = await self.submit([template], [repeated(job_id, payload, extra, request_id)])
        for refusal in submitted.refusals.values():
            raise refusal.error()
        return submitted.job_ids[0]


def _end(ledger: Ledger, job: JobRecord, _now: Now) -> object:
    return job_view(ledger, job), result_view(job)


def _nothing() -> None:
    """Does nothing: a read is answered soon, and a reply that arrives late is ignored."""


_Again = tuple[Template, bytes, Extra | None]


def _again(_ledger: Ledger, job: JobRecord, _now: Now) -> object:
    """Returns the data for a retry of the job, or a refusal if it has not ended."""
    return refusal_to_repeat(job.id, job.state) or (job.template, job.payload, job.extra)
