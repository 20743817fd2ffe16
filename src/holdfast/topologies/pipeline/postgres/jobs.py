"""`JobStore` on PostgreSQL: jobs as clients see them."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any

from holdfast.core.commands import CancelReply, Refusal, Submitted
from holdfast.core.history import Entry
from holdfast.core.lifecycle import TERMINAL, State
from holdfast.core.model import NewJob, QueueMode, Template
from holdfast.core.outcomes import result_summary
from holdfast.core.owner import mint
from holdfast.core.validation import bad_given_id, check_batch, check_job, check_reason, check_template, is_given_id
from holdfast.errors import UnavailableError
from holdfast.ledger.job_ids import RandomPool
from holdfast.ports import JobDraft, JobQuery, JobView, Page, ResultView, SearchPage
from holdfast.postgres.statements import statements
from holdfast.topologies.pipeline.backend.store import StateFacts
from holdfast.topologies.pipeline.postgres.connections import Database, StoreConnection
from holdfast.topologies.pipeline.postgres.history import history_of
from holdfast.topologies.pipeline.postgres.inserts import InsertSubmission, ValidatedJob
from holdfast.topologies.pipeline.postgres.notification_listener import listen
from holdfast.topologies.pipeline.postgres.notifier import StoreNotifier
from holdfast.topologies.pipeline.postgres.outcomes import cancel_one
from holdfast.topologies.pipeline.postgres.row_values import (
    Row,
    known_id,
    no_job,
    possible_ids,
    view_of,
)
from holdfast.topologies.pipeline.postgres.search import Search

_SQL = statements(__package__, "jobs")
_ABOUT = statements(__package__, "administration")["about_waiting"]

#: A submission that fails this often competes with others that keep taking and freeing the same key.
_TRIES = 5


#: A page token may be larger than a bigint; no table has this many rows.
_OFFSET_MAX = 1 << 62


class PostgresJobStore:
    """The store operations on jobs."""

    def __init__(self, database: Database, teller: StoreNotifier) -> None:
        self._database, self._teller = database, teller
        self._random = RandomPool()

    async def insert(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Needs only one statement if all jobs are new."""
        refusal = check_batch([draft.payload for draft in drafts], len(templates))
        refusal = refusal or next(filter(None, map(check_template, templates)), None)
        if refusal:
            raise refusal.error()
        now_ms = await self._database.now_ms()
        jobs, refusals = self._checked(templates, drafts, now_ms)
        intake = InsertSubmission(templates, jobs)
        for _ in range(_TRIES):
            if intake.is_settled:
                break
            await self._database.ask(intake.make_new)
            if not intake.is_settled:
                await self._database.ask(intake.find)
        else:
            raise UnavailableError("other submissions use the same keys; try again", reason="SUBMIT_IN_FLIGHT")
        intake.refusals |= refusals
        if intake.at_ms:
            self._teller.tell(is_due=True)
        # An id that was generated here cannot be of an older job: an earlier try inserted it, but its reply was lost.
        intake.existing -= {at for at in intake.existing if not drafts[at].id and intake.ids[at] == jobs[at].id}
        return intake.submitted(len(drafts), now_ms)

    def _checked(
        self, templates: Sequence[Template], drafts: Sequence[JobDraft], now_ms: int
    ) -> tuple[dict[int, ValidatedJob], dict[int, Refusal]]:
        """Splits the drafts into valid jobs and refusals."""
        ids = iter(mint(self._random, sum(not draft.id for draft in drafts)))
        jobs: dict[int, ValidatedJob] = {}
        refusals: dict[int, Refusal] = {}
        for at, draft in enumerate(drafts):
            job_id = draft.id or next(ids)
            refusal = None if is_given_id(job_id) else bad_given_id(job_id)
            due_ms = max(draft.not_before_ms, now_ms + draft.delay_ms if draft.delay_ms else 0)
            job = NewJob(job_id, draft.template, draft.payload, due_ms, draft.extra)
            refusal = check_job(job, len(templates), now_ms) or refusal
            if refusal:
                refusals[at] = refusal
            else:
                jobs[at] = ValidatedJob(
                    job_id, draft.template, draft.payload, draft.not_before_ms, draft.extra, draft.delay_ms
                )
        return jobs, refusals

    async def get(self, job_id: str) -> JobView:
        """Returns the job as committed."""
        return view_of(await self._one("get", job_id))

    async def payload(self, job_id: str) -> bytes:
        """Returns the payload as submitted."""
        return bytes((await self._one("payload", job_id))[0])

    async def result(self, job_id: str) -> ResultView:
        """Reads state and result in one statement."""
        state, output, summary, failure_reason, runtime_ms = await self._one("result", job_id)
        words = result_summary(state, reason=failure_reason, summary=summary)
        return _result(State(state), output, words, runtime_ms)

    async def history(self, job_id: str) -> list[Entry]:
        """Reads the job and its attempts in one statement."""
        known_id(job_id)

        async def ask(connection: StoreConnection) -> list[Row]:
            return list(await (await connection.execute(_SQL["history"], {"id": job_id}, binary=True)).fetchall())

        rows = await self._database.ask(ask)
        if not rows:
            raise no_job(job_id)
        return history_of(rows)

    async def standing(self, job_id: str) -> StateFacts:
        """Reads the job, and then its claim, lease and queue, in two statements."""
        view = await self.get(job_id)

        async def ask(connection: StoreConnection) -> Row | None:
            return await (await connection.execute(_ABOUT, {"id": job_id}, binary=True)).fetchone()

        row = await self._database.ask(ask)
        if row is None:
            raise no_job(job_id)
        claimed_ms, visible_ms, lease_until_ms, now_ms, mode, reason, since_ms = row
        return StateFacts(
            view=view,
            now_ms=now_ms,
            claimed_ms=claimed_ms,
            visible_ms=visible_ms,
            lease_until_ms=lease_until_ms,
            mode=QueueMode(mode or QueueMode.OPEN),
            mode_reason=reason or "",
            mode_since_ms=since_ms or 0,
        )

    async def _one(self, name: str, job_id: str) -> Row:
        known_id(job_id)

        async def ask(connection: StoreConnection) -> Row | None:
            return await (await connection.execute(_SQL[name], {"id": job_id}, binary=True)).fetchone()

        row = await self._database.ask(ask)
        if row is None:
            raise no_job(job_id)
        return row

    async def cancel(self, job_id: str, reason: str) -> CancelReply:
        """Decides under the row's lock, like starts and reports."""
        refusal = check_reason(reason)
        if refusal:
            raise refusal.error()
        known_id(job_id)

        reply = await self._database.transact(lambda connection: cancel_one(connection, job_id, reason))
        if reply is None:
            raise no_job(job_id)
        return reply

    async def page(self, states: Collection[State], offset: int, size: int, *, newest_first: bool) -> Page:
        """Walks along an index, so the cost grows with the offset."""
        offset = min(offset, _OFFSET_MAX)
        arguments: dict[str, Any] = {
            "states": sorted(states or State),
            "offset": offset,
            "size": size + 1,
            "end": offset + size + 1,
        }

        async def ask(connection: StoreConnection) -> list[JobView]:
            statement = _SQL["page_newest" if newest_first else "page_oldest"]
            # Not prepared: the best plan depends on the offset.
            cursor = await connection.execute(statement, arguments, prepare=False, binary=True)
            return [view_of(row) for row in await cursor.fetchall()]

        views = await self._database.ask(ask)
        return Page(views[:size], has_more=len(views) > size)

    async def find(self, query: JobQuery, cursor: str, size: int) -> SearchPage:
        """Walks along an index, and reads a bounded number of rows."""
        return await self._database.ask(Search(query, cursor, size).run)

    async def versions(self, job_ids: Collection[str]) -> Mapping[str, int]:
        """Runs one statement for all jobs."""
        ids = possible_ids(list(job_ids))

        async def ask(connection: StoreConnection) -> dict[str, int]:
            cursor = await connection.execute(_SQL["versions"], {"ids": ids}, binary=True)
            return dict(await cursor.fetchall())

        return await self._database.ask(ask)

    async def ended(self, job_ids: Collection[str]) -> Mapping[str, tuple[JobView, ResultView]]:
        """Runs one statement for all jobs."""
        ids = possible_ids(list(job_ids))

        async def ask(connection: StoreConnection) -> dict[str, tuple[JobView, ResultView]]:
            rows = await (await connection.execute(_SQL["ended"], {"ids": ids}, binary=True)).fetchall()
            ended: dict[str, tuple[JobView, ResultView]] = {}
            for *job, output, summary, runtime_ms in rows:
                view = view_of(job)
                words = result_summary(view.state, reason=view.failure_reason, summary=summary)
                ended[view.id] = (view, _result(view.state, output, words, runtime_ms))
            return ended

        return await self._database.ask(ask)

    async def changes(self) -> AsyncIterator[Collection[str]]:
        """Yields an empty collection first, as soon as no change can be missed any more."""
        async for notice in listen(self._database, "holdfast_changed"):
            yield frozenset(notice.split(",")) if notice else frozenset()


def _result(state: State, output: bytes, summary: str, runtime_ms: int) -> ResultView:
    """Returns the result; only the state if the job has not ended."""
    if state not in TERMINAL:
        return ResultView(state)
    return ResultView(state, bytes(output), summary, runtime_ms)
