"""`JobApi` over nodes: for a gateway, or inside a client that has no server of ours.

Invariants: a reply about a job is no older than its request, except from a leader that has been replaced and does not
know it yet; on one connection it is never older than an earlier reply. A read sets its watch, so that no later change
is missed.
"""

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Collection, Sequence

from holdfast.core.commands import CancelReply, Submitted
from holdfast.core.history import Entry
from holdfast.core.lifecycle import FAILED, QUEUED, TERMINAL, State
from holdfast.core.model import Result, Template
from holdfast.core.outcomes import result_summary
from holdfast.core.tasks import unknown_job
from holdfast.core.validation import check_reason, is_given_id
from holdfast.errors import FailedPreconditionError
from holdfast.ledger.manual_retry import refusal_to_repeat, repeated
from holdfast.ports import Explanation, Found, JobDraft, JobQuery, JobView, Page, ResultView
from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection
from holdfast.topologies.zookeeper.backend.history import history_of
from holdfast.topologies.zookeeper.backend.job_listing import NodeListing
from holdfast.topologies.zookeeper.backend.kazoo_bridge import Bell
from holdfast.topologies.zookeeper.backend.node_changes import Changing, Decided
from holdfast.topologies.zookeeper.backend.paths import BACK, bucket_name, posting_named
from holdfast.topologies.zookeeper.backend.records import (
    DELAYED,
    Kept,
    Record,
    executions_of,
    kept_of,
    result_of,
    view_of,
)
from holdfast.topologies.zookeeper.backend.submission import NodeSubmission
from holdfast.topologies.zookeeper.backend.transactions import ReadNode
from holdfast.topologies.zookeeper.backend.why import explain


class NodeJobs:
    """The operations that clients call, on the nodes of the ensemble."""

    def __init__(self, connection: EnsembleConnection) -> None:
        self._connection = connection
        self._paths = connection.paths
        self._changing = Changing(connection)
        self._listing = NodeListing(connection)

    async def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Submits jobs, in many concurrent transactions."""
        return await NodeSubmission(self._changing, templates, drafts).run()

    async def get(self, job_id: str) -> JobView:
        """Returns the job, from its record."""
        return view_of((await self._kept(job_id)).record)

    async def result(self, job_id: str) -> ResultView:
        """Returns the result, if the record is terminal."""
        kept = await self._kept(job_id)
        return await self._result(kept)

    async def payload(self, job_id: str) -> bytes:
        """Returns the payload as submitted."""
        kept = await self._kept(job_id)
        if not kept.record.payload_bytes:
            return b""
        node = await self._connection.repeat(lambda: self._connection.get(self._paths.payload(job_id)))
        if node is None:  # the job was deleted meanwhile
            raise unknown_job(job_id).error()
        return node.data

    async def cancel(self, job_id: str, reason: str) -> CancelReply:
        """Cancels the job; the version of the record decides between cancel and bid."""
        return await _cancel(self._changing, _checked(job_id), reason)

    async def page(self, states: Collection[State], offset: int, size: int, *, newest_first: bool) -> Page:
        """Returns a page; reads the index record by record."""
        return await self._connection.repeat(
            lambda: self._listing.page(states, offset, size, newest_first=newest_first)
        )

    async def find(self, query: JobQuery, cursor: str, size: int) -> Found:
        """Searches in parts, each of which reads a bounded number of records."""
        return await self._connection.repeat(lambda: self._listing.find(query, cursor, size))

    async def explain(self, job_id: str) -> Explanation:
        """Explains the state by the record and the nodes of the workers."""
        kept = await self._kept(job_id)
        summary = (await self._result(kept)).summary
        reason, sentence = await self._connection.repeat(lambda: explain(self._connection, kept.record, summary))
        return Explanation(State(kept.record.state), reason, sentence)

    async def watch(self, job_id: str) -> AsyncGenerator[JobView, None]:
        """Yields the job now and after each change until it is terminal."""
        async with contextlib.aclosing(self._changes(job_id)) as changes:
            async for kept in changes:
                yield view_of(kept.record)

    async def settled(self, job_id: str) -> tuple[JobView, ResultView]:
        """Waits for the end of the job, by a watch on its record."""
        async with contextlib.aclosing(self._changes(job_id)) as changes:
            async for kept in changes:
                if kept.record.state in TERMINAL:
                    return view_of(kept.record), await self._result(kept)
        raise AssertionError("the changes of a job end when it is terminal")

    async def retry(self, job_id: str, request_id: str = "") -> str:
        """Submits a copy of the job; a call with the same request id returns the same copy."""
        view = await self.get(job_id)
        refusal = refusal_to_repeat(job_id, view.state)
        if refusal:
            raise refusal.error()
        again = repeated(job_id, await self.payload(job_id), view.extra, request_id)
        submitted = await self.submit([view.template], [again])
        for refusal in submitted.refusals.values():
            raise refusal.error()
        return submitted.job_ids[0]

    async def forget(self, job_id: str) -> None:
        """Deletes a finished job with its result, before its retention is over."""
        kept = await self._kept(job_id)
        if kept.record.state not in TERMINAL:
            state = State(kept.record.state).name
            raise FailedPreconditionError(f"job {job_id!r} is {state}; it has not ended", reason="JOB_NOT_ENDED")
        await self._changing.forget(kept, await self._retention_note(kept))

    async def history(self, job_id: str) -> list[Entry]:
        """Returns the history from the record, the result, and the stored earlier attempts (the last ten)."""
        kept = await self._kept(job_id)
        path = self._paths.executions(job_id)
        node = await self._connection.repeat(lambda: self._connection.get(path))
        result = await self._stored_result(kept) if kept.record.state in TERMINAL else None
        return history_of(kept.record, executions_of(node), result)

    async def _retention_note(self, kept: Kept) -> str:
        """Returns the path of the retention note; earlier versions put FAILED jobs under `ended`, too."""
        note = self._changing.moves.retention_note(kept.record)
        if kept.record.state == FAILED and await self._connection.exists(note) is None:
            return self._paths.ended_job(kept.record.finished_ms, kept.record.id)
        return note

    async def _changes(self, job_id: str) -> AsyncGenerator[Kept, None]:
        """Yields the record now and after each change; each read sets the watch for the next change."""
        path, bell = self._paths.record(_checked(job_id)), Bell()
        version = -1
        try:
            while True:
                bell.clear()
                node = await self._connection.repeat(lambda: self._newest(path, bell))
                if node is None:
                    raise unknown_job(job_id).error()
                kept = kept_of(node)
                if kept.version > version:
                    version = kept.version
                    yield kept
                if kept.record.state in TERMINAL:
                    return
                await bell.wait()
        finally:
            self._connection.ignore(path, bell)

    def _newest(self, path: str, bell: Bell) -> Awaitable[ReadNode | None]:
        self._connection.sync()
        return self._connection.get(path, bell)

    async def _kept(self, job_id: str) -> Kept:
        kept = await self._changing.read(_checked(job_id))
        if kept is None:
            raise unknown_job(job_id).error()
        return kept

    async def _result(self, kept: Kept) -> ResultView:
        state = State(kept.record.state)
        if state not in TERMINAL:
            return ResultView(state)
        result = await self._stored_result(kept)
        summary = result_summary(state, reason=result.failure_reason, summary=result.summary)
        return ResultView(state, result.output, summary, result.runtime_ms)

    async def _stored_result(self, kept: Kept) -> Result:
        node = await self._connection.repeat(lambda: self._connection.get(self._paths.result(kept.record.id)))
        if node is None:  # the job was deleted meanwhile
            raise unknown_job(kept.record.id).error()
        return result_of(node)


def _checked(job_id: str) -> str:
    """Refuses an id that is not a UUID: no job has it, and it must not become part of a path."""
    if not is_given_id(job_id):
        raise unknown_job(job_id).error()
    return job_id


async def _cancel(changing: Changing, job_id: str, reason: str) -> CancelReply:
    """Cancels a job against bids: the first transaction wins, and the other finds a newer version.

    Invariants: one transaction ends a waiting job together with its posting, so no bid can win afterwards. A running
    job is only requested to stop, and the same transaction notifies its worker. `NotFoundError` if there is no such
    job.
    """
    refusal = check_reason(reason)
    if refusal:
        raise refusal.error()
    kept = await changing.read(job_id)
    if kept is None:
        raise unknown_job(job_id).error()
    seen = kept

    async def decide(kept: Kept) -> Decided:
        nonlocal seen
        seen, record = kept, kept.record
        if record.state in TERMINAL or record.cancel_requested:
            return None
        if record.state == QUEUED:
            waits_at = await _waiting_path(changing, record)
            return changing.moves.cancel_queued(kept, waits_at, reason, changing.connection.now_ms())
        stat = await changing.connection.exists(changing.paths.asked_of(record.worker))
        now_ms = changing.connection.now_ms()
        return changing.moves.ask_to_stop(kept, reason, now_ms, is_heard=stat is not None)

    changed = await changing.change(kept, decide, reason)
    if changed is not None:
        return CancelReply(State(changed.state), was_terminal=False, token=changed.token)
    record = seen.record
    return CancelReply(State(record.state), was_terminal=record.state in TERMINAL, token=record.token)


async def _waiting_path(changing: Changing, record: Record) -> str:
    """Returns the path of a waiting job's node; if the job no longer waits, the transaction is refused."""
    paths = changing.paths
    if record.bucket == DELAYED:
        return paths.delayed_job(record.not_before_ms, record.id)
    bucket = BACK if record.bucket < 0 else bucket_name(record.bucket)
    path = paths.bucket(record.lane, bucket)
    for name in await changing.connection.children(path) or []:
        if posting_named(bucket, name).job_id == record.id:
            return f"{path}/{name}"
    return f"{path}/{record.id}"
