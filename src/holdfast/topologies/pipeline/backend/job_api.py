"""`JobApi` and `HistoryApi` over a store, for a scheduler."""

from collections.abc import AsyncGenerator, Collection, Sequence

from holdfast.client.submit_batcher import SubmitBatcher
from holdfast.core.commands import CancelReply, Submitted
from holdfast.core.history import Entry
from holdfast.core.lifecycle import TERMINAL, State
from holdfast.core.model import Template
from holdfast.ledger.manual_retry import refusal_to_repeat, repeated
from holdfast.ports import Explanation, JobDraft, JobQuery, JobView, Page, ResultView, SearchPage
from holdfast.topologies.pipeline.backend.explanation import why
from holdfast.topologies.pipeline.backend.store import Store
from holdfast.topologies.pipeline.backend.waiters import Settled, StoreWaiters


class PipelineJobs:
    """The clients' requests, answered from the database; `close` ends the waiting ones."""

    def __init__(self, store: Store) -> None:
        self._rows, self._places = store.rows, store.workers
        self._batcher = SubmitBatcher(store.rows.insert)
        self._waiters = StoreWaiters(store.rows)

    async def close(self) -> None:
        """Fails the waiting calls, so that their clients call another scheduler."""
        await self._batcher.close()
        await self._waiters.close()

    async def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Batches the submissions that arrive during a write into one transaction."""
        return await self._batcher.submit(templates, drafts)

    async def get(self, job_id: str) -> JobView:
        """Returns the job as committed."""
        return await self._rows.get(job_id)

    async def result(self, job_id: str) -> ResultView:
        """Returns state and result of one moment, so that they are consistent."""
        return await self._rows.result(job_id)

    async def payload(self, job_id: str) -> bytes:
        """Returns the payload as submitted."""
        return await self._rows.payload(job_id)

    async def history(self, job_id: str) -> list[Entry]:
        """Returns the history, from the job's row and the rows of its attempts."""
        return await self._rows.history(job_id)

    async def cancel(self, job_id: str, reason: str) -> CancelReply:
        """Cancels the job; decided under the lock of its row."""
        return await self._rows.cancel(job_id, reason)

    async def page(self, states: Collection[State], offset: int, size: int, *, newest_first: bool) -> Page:
        """Returns a page, read in one statement."""
        return await self._rows.page(states, offset, size, newest_first=newest_first)

    async def find(self, query: JobQuery, cursor: str, size: int) -> SearchPage:
        """Searches in parts, each of which reads a bounded number of jobs."""
        return await self._rows.find(query, cursor, size)

    async def explain(self, job_id: str) -> Explanation:
        """Explains the job's state by its row and the places that coordinators have saved."""
        standing = await self._rows.standing(job_id)
        places = await self._places.all() if standing.view.state == State.QUEUED else []
        summary = (await self._rows.result(job_id)).summary if standing.view.state in TERMINAL else ""
        reason, sentence = why(standing, places, summary)
        return Explanation(standing.view.state, reason, sentence)

    async def watch(self, job_id: str) -> AsyncGenerator[JobView, None]:
        """Yields the job now and after each noticed change, until it is terminal."""
        changed = self._waiters.watch(job_id)
        try:
            before: JobView | None = None
            while True:
                changed.clear()
                job = await self._rows.get(job_id)
                if job != before:
                    before = job
                    yield job
                if job.state in TERMINAL:
                    return
                await changed.wait()
        finally:
            self._waiters.unwatch(job_id, changed)

    async def settled(self, job_id: str) -> Settled:
        """Waits for the end of the job; waiting calls share their lookups."""
        return await self._waiters.end_of(job_id)

    async def retry(self, job_id: str, request_id: str = "") -> str:
        """Submits a copy of the job; a call with the same request id returns the same copy."""
        view = await self._rows.get(job_id)
        refusal = refusal_to_repeat(job_id, view.state)
        if refusal:
            raise refusal.error()
        again = repeated(job_id, await self._rows.payload(job_id), view.extra, request_id)
        submitted = await self.submit([view.template], [again])
        for refusal in submitted.refusals.values():
            raise refusal.error()
        return submitted.job_ids[0]
