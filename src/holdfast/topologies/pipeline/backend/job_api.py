"""`JobApi` and `HistoryApi` over a store: what a scheduler answers."""

from collections.abc import AsyncGenerator, Collection, Sequence

from holdfast.client.submit_batcher import Joiner
from holdfast.core.commands import CancelReply, Submitted
from holdfast.core.history import Entry
from holdfast.core.lifecycle import TERMINAL, State
from holdfast.core.model import Template
from holdfast.ledger.manual_retry import refusal_to_repeat, repeated
from holdfast.ports import Explanation, Found, JobDraft, JobQuery, JobView, Page, ResultView
from holdfast.topologies.pipeline.backend.store import Store
from holdfast.topologies.pipeline.backend.waiters import Settled, StoreWaiters
from holdfast.topologies.pipeline.backend.why import why


class PipelineJobs:
    """What clients ask for, answered by the database; `close` ends what waits."""

    def __init__(self, store: Store) -> None:
        self._rows, self._places = store.rows, store.places
        self._joiner = Joiner(store.rows.insert)
        self._waiters = StoreWaiters(store.rows)

    async def close(self) -> None:
        """Whoever waits for an answer is told, and asks another scheduler."""
        await self._joiner.close()
        await self._waiters.close()

    async def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """What comes while others are being written is written together, as one transaction."""
        return await self._joiner.submit(templates, drafts)

    async def get(self, job_id: str) -> JobView:
        """As committed."""
        return await self._rows.get(job_id)

    async def result(self, job_id: str) -> ResultView:
        """State and result together, so that they cannot disagree."""
        return await self._rows.result(job_id)

    async def payload(self, job_id: str) -> bytes:
        """As it was submitted."""
        return await self._rows.payload(job_id)

    async def history(self, job_id: str) -> list[Entry]:
        """From the job's row and those of its attempts."""
        return await self._rows.history(job_id)

    async def cancel(self, job_id: str, reason: str) -> CancelReply:
        """Decided by the row, like the right to run."""
        return await self._rows.cancel(job_id, reason)

    async def page(self, states: Collection[State], offset: int, size: int, *, newest_first: bool) -> Page:
        """At one instant."""
        return await self._rows.page(states, offset, size, newest_first=newest_first)

    async def find(self, query: JobQuery, cursor: str, size: int) -> Found:
        """In parts; each looks at a bounded number of jobs."""
        return await self._rows.find(query, cursor, size)

    async def explain(self, job_id: str) -> Explanation:
        """From the row, and from what the coordinator has written down of workers."""
        standing = await self._rows.standing(job_id)
        places = await self._places.all() if standing.view.state == State.QUEUED else []
        summary = (await self._rows.result(job_id)).summary if standing.view.state in TERMINAL else ""
        reason, sentence = why(standing, places, summary)
        return Explanation(standing.view.state, reason, sentence)

    async def watch(self, job_id: str) -> AsyncGenerator[JobView, None]:
        """The job now and after each change that is noticed, until it is terminal."""
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
        """Looked up together with whatever else has ended."""
        return await self._waiters.end_of(job_id)

    async def retry(self, job_id: str, request_id: str = "") -> str:
        """Same template, payload, labels and headers; under a request id the same call finds the same job."""
        view = await self._rows.get(job_id)
        refusal = refusal_to_repeat(job_id, view.state)
        if refusal:
            raise refusal.error()
        again = repeated(job_id, await self._rows.payload(job_id), view.extra, request_id)
        submitted = await self.submit([view.template], [again])
        for refusal in submitted.refusals.values():
            raise refusal.error()
        return submitted.job_ids[0]
