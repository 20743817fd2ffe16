"""`JobApi` over a coordinator in this process."""

from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence
from typing import cast

from holdfast import limits
from holdfast.core import commands
from holdfast.core.commands import CancelReply, Submitted
from holdfast.core.ledger import Ledger
from holdfast.core.lifecycle import TERMINAL, State
from holdfast.core.listing import Place
from holdfast.core.model import Extra, Job, NewJob, Now, Template
from holdfast.core.progress import ProgressBoard
from holdfast.core.tasks import unknown_job
from holdfast.core.why import why
from holdfast.core.workers import WorkerInfo
from holdfast.errors import InvalidArgumentError
from holdfast.ledger.coordinator import STOPPING, CommandLane, Coordinator
from holdfast.ledger.coordinator_calls import CoordinatorCaller
from holdfast.ledger.job_ids import Mint, random_minter
from holdfast.ledger.manual_retry import refusal_to_repeat, repeated
from holdfast.ledger.search import cursor_of, place_of, wanted_by
from holdfast.ledger.views import job_view, result_view
from holdfast.ledger.waiters import Settled, Waiters
from holdfast.ports import Explanation, Found, JobDraft, JobQuery, JobView, Page, ResultView

#: How many slices one call of `find` looks through before it answers with what it has.
_FIND_SLICES_MAX = 20

#: Asked of one job, at one instant.
About = Callable[[Ledger, Job, Now], object]


class LedgerJobs:
    """What clients ask for, answered by the ledger."""

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
        """An id for a job that somebody else makes here."""
        return self._mint(1)[0]

    def close(self) -> None:
        """The coordinator stops: whoever waits for a job is told, and asks another server."""
        self._waiters.close(STOPPING.error())

    async def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """One command, one event, one sync for all of them."""
        return cast("Submitted", await self._caller.call(CommandLane.SUBMIT, self._submission(templates, drafts)))

    def submit_then(
        self, templates: Sequence[Template], drafts: Sequence[JobDraft], done: Callable[[object], None]
    ) -> None:
        """The same for who cannot await: `done` hears the reply or a refusal, on the coordinator's thread."""
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

    def _view(self, ledger: Ledger, job: Job) -> JobView:
        return job_view(ledger, job, self._progress)

    async def get(self, job_id: str) -> JobView:
        """The job at one instant, all of it durable."""
        return cast("JobView", await self._ask(job_id, lambda ledger, job, _: self._view(ledger, job)))

    async def result(self, job_id: str) -> ResultView:
        """State and result together, so that they cannot disagree."""
        return cast("ResultView", await self._ask(job_id, lambda _ledger, job, _now: result_view(job)))

    async def payload(self, job_id: str) -> bytes:
        """As it was submitted."""
        return cast("bytes", await self._ask(job_id, lambda _ledger, job, _now: job.payload))

    async def explain(self, job_id: str) -> Explanation:
        """From the state and from what workers have said of themselves, at one instant."""

        def about(ledger: Ledger, job: Job, now: Now) -> object:
            reason, sentence = why(ledger, job, self._workers(), now)
            return Explanation(State(job.state), reason, sentence)

        return cast("Explanation", await self._ask(job_id, about))

    async def _ask(self, job_id: str, about: About) -> object:
        def query(ledger: Ledger, now: Now) -> object:
            job = ledger.job(job_id)
            return unknown_job(job_id) if job is None else about(ledger, job, now)

        return await self._caller.read(CommandLane.SUBMIT, query)

    async def cancel(self, job_id: str, reason: str) -> CancelReply:
        """Decided in one place with grants and reports, so exactly one of them wins."""
        reply = await self._caller.call(CommandLane.SUBMIT, commands.Cancel(job_id, reason))
        return cast("CancelReply", reply)

    async def page(self, states: Collection[State], offset: int, size: int, *, newest_first: bool) -> Page:
        """One slice of the listing; the loop serves others between slices."""

        def query(ledger: Ledger, _: Now) -> object:
            jobs, has_more = ledger.page(frozenset(states), offset, size, newest_first=newest_first)
            return Page([self._view(ledger, job) for job in jobs], has_more)

        return cast("Page", await self._caller.read(CommandLane.LIST, query))

    async def watch(self, job_id: str) -> AsyncGenerator[JobView, None]:
        """The job now and after each durable change, until it is terminal."""
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
        """Handed over by the event that ends the job; nothing is asked of the loop while it runs."""
        job = self._coordinator.ledger.job(job_id)
        if job is None or job.state in TERMINAL:  # perhaps not durably: the loop answers when it is
            end = await self._ask(job_id, lambda ledger, job, _: (job_view(ledger, job), result_view(job)))
            return cast("Settled", end)
        return await self._waiters.end_of(job_id)

    async def find(self, query: JobQuery, cursor: str, size: int) -> Found:
        """A walk over the listing in slices, between which the loop serves others."""
        if size < 1:
            message = f"expected the size of a part to be at least 1, got {size}"
            raise InvalidArgumentError(message, reason="PAGE_SIZE_INVALID")
        place, found = place_of(query, cursor), list[JobView]()
        size = min(size, limits.PAGE_SIZE_MAX)
        for _ in range(_FIND_SLICES_MAX):
            jobs, place = await self._scan(query, place, size - len(found))
            found += jobs
            if place is None or len(found) == size:
                break
        return Found(found, cursor_of(query, place))

    async def _scan(self, query: JobQuery, after: Place | None, size: int) -> tuple[list[JobView], Place | None]:
        """One slice, all of it durable."""

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
        """Same template, payload, labels and headers; under a request id the same call finds the same job."""
        template, payload, extra = cast("_Again", await self._ask(job_id, _again))
        submitted = await self.submit([template], [repeated(job_id, payload, extra, request_id)])
        for refusal in submitted.refusals.values():
            raise refusal.error()
        return submitted.job_ids[0]


_Again = tuple[Template, bytes, Extra | None]


def _again(_ledger: Ledger, job: Job, _now: Now) -> object:
    """What makes a job like this one, if it has ended."""
    return refusal_to_repeat(job.id, job.state) or (job.template, job.payload, job.extra)
