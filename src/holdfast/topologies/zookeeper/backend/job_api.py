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
from holdfast.ports import Explanation, JobDraft, JobQuery, JobView, Page, ResultView, SearchPage
from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection
from holdfast.topologies.zookeeper.backend.explanation import explain
from holdfast.topologies.zookeeper.backend.history import history_of
from holdfast.topologies.zookeeper.backend.job_listing import NodeListing
from holdfast.topologies.zookeeper.backend.kazoo_bridge import WatchEvent
from holdfast.topologies.zookeeper.backend.node_changes import Decided, NodeChanges
from holdfast.topologies.zookeeper.backend.paths import BACK, bucket_name, posting_named
from holdfast.topologies.zookeeper.backend.records import (
    DELAYED,
    Record,
    VersionedRecord,
    executions_of,
    kept_of,
    result_of,
    view_of,
)
from holdfast.topologies.zookeeper.backend.submission import NodeSubmission
from holdfast.topologies.zookeeper.backend.transactions import ReadNode


class NodeJobs:
    """The operations that clients call, on the nodes of the ensemble."""

    def __init__(self, connection: EnsembleConnection) -> None:
        self._connection = connection
        self._paths = connection.paths
        self._node_changes = NodeChanges(connection)
        self._listing = NodeListing(connection)

    async def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Submits jobs, in many concurrent transactions."""
        return await NodeSubmission(self._node_changes, templates, drafts).run()

    async def get(self, job_id: str) -> JobView:
        """Returns the job, from its record."""
        return view_of((await self._kept(job_id)).record)

    async def result(self, job_id: str) -> ResultView:
        """Returns the result, if the record is terminal."""
        stored = await self._kept(job_id)
        return await self._result(stored)

    async def payload(self, job_id: str) -> bytes:
        """Returns the payload as submitted."""
        stored = await self._kept(job_id)
        if not stored.record.payload_bytes:
            return b""
        node = await self._connection.repeat(lambda: self._connection.get(self._paths.payload(job_id)))
        if node is None:  # the job was deleted meanwhile
            raise unknown_job(job_id).error()
        return node.data

    async def cancel(self, job_id: str, reason: str) -> CancelReply:
        """Cancels the job; the version of the record decides between cancel and bid."""
        return await _cancel(self._node_changes, _checked(job_id), reason)

    async def page(self, states: Collection[State], offset: int, size: int, *, newest_first: bool) -> Page:
        """Returns a page; reads the index record by record."""
        return await self._connection.repeat(
            lambda: self._listing.page(states, offset, size, newest_first=newest_first)
        )

    async def find(self, query: JobQuery, cursor: str, size: int) -> SearchPage:
        """Searches in parts, each of which reads a bounded number of records."""
        return await self._connection.repeat(lambda: self._listing.find(query, cursor, size))

    async def explain(self, job_id: str) -> Explanation:
        """Explains the state by the record and the nodes of the workers."""
        stored = await self._kept(job_id)
        summary = (await self._result(stored)).summary
        reason, sentence = await self._connection.repeat(lambda: explain(self._connection, stored.record, summary))
        return Explanation(State(stored.record.state), reason, sentence)

    async def watch(self, job_id: str) -> AsyncGenerator[JobView, None]:
        """Yields the job now and after each change until it is terminal."""
        async with contextlib.aclosing(self._changes(job_id)) as changes:
            async for stored in changes:
                yield view_of(stored.record)

    async def settled(self, job_id: str) -> tuple[JobView, ResultView]:
        """Waits for the end of the job, by a watch on its record."""
        async with contextlib.aclosing(self._changes(job_id)) as changes:
            async for stored in changes:
                if stored.record.state in TERMINAL:
                    return view_of(stored.record), await self._result(stored)
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
        stored = await self._kept(job_id)
        if stored.record.state not in TERMINAL:
            state = State(stored.record.state).name
            raise FailedPreconditionError(f"job {job_id!r} is {state}; it has not ended", reason="JOB_NOT_ENDED")
        await self._node_changes.forget(stored, await self._retention_note(stored))

    async def history(self, job_id: str) -> list[Entry]:
        """Returns the history from the record, the result, and the stored earlier attempts (the last ten)."""
        stored = await self._kept(job_id)
        path = self._paths.executions(job_id)
        node = await self._connection.repeat(lambda: self._connection.get(path))
        result = await self._stored_result(stored) if stored.record.state in TERMINAL else None
        return history_of(stored.record, executions_of(node), result)

    async def _retention_note(self, stored: VersionedRecord) -> str:
        """Returns the path of the retention note; earlier versions put FAILED jobs under `ended`, too."""
        note = self._node_changes.transactions.retention_note(stored.record)
        if stored.record.state == FAILED and await self._connection.exists(note) is None:
            return self._paths.ended_job(stored.record.finished_ms, stored.record.id)
        return note

    async def _changes(self, job_id: str) -> AsyncGenerator[VersionedRecord, None]:
        """Yields the record now and after each change; each read sets the watch for the next change."""
        path, watch_event = self._paths.record(_checked(job_id)), WatchEvent()
        version = -1
        try:
            while True:
                watch_event.clear()
                node = await self._connection.repeat(lambda: self._newest(path, watch_event))
                if node is None:
                    raise unknown_job(job_id).error()
                stored = kept_of(node)
                if stored.version > version:
                    version = stored.version
                    yield stored
                if stored.record.state in TERMINAL:
                    return
                await watch_event.wait()
        finally:
            self._connection.ignore(path, watch_event)

    def _newest(self, path: str, watch_event: WatchEvent) -> Awaitable[ReadNode | None]:
        self._connection.sync()
        return self._connection.get(path, watch_event)

    async def _kept(self, job_id: str) -> VersionedRecord:
        stored = await self._node_changes.read(_checked(job_id))
        if stored is None:
            raise unknown_job(job_id).error()
        return stored

    async def _result(self, stored: VersionedRecord) -> ResultView:
        state = State(stored.record.state)
        if state not in TERMINAL:
            return ResultView(state)
        result = await self._stored_result(stored)
        summary = result_summary(state, reason=result.failure_reason, summary=result.summary)
        return ResultView(state, result.output, summary, result.runtime_ms)

    async def _stored_result(self, stored: VersionedRecord) -> Result:
        node = await self._connection.repeat(lambda: self._connection.get(self._paths.result(stored.record.id)))
        if node is None:  # the job was deleted meanwhile
            raise unknown_job(stored.record.id).error()
        return result_of(node)


def _checked(job_id: str) -> str:
    """Refuses an id that is not a UUID: no job has it, and it must not become part of a path."""
    if not is_given_id(job_id):
        raise unknown_job(job_id).error()
    return job_id


async def _cancel(node_changes: NodeChanges, job_id: str, reason: str) -> CancelReply:
    """Cancels a job against bids: the first transaction wins, and the other finds a newer version.

    Invariants: one transaction ends a waiting job together with its posting, so no bid can win afterwards. A running
    job is only requested to stop, and the same transaction notifies its worker. `NotFoundError` if there is no such
    job.
    """
    refusal = check_reason(reason)
    if refusal:
        raise refusal.error()
    stored = await node_changes.read(job_id)
    if stored is None:
        raise unknown_job(job_id).error()
    seen = stored

    async def decide(stored: VersionedRecord) -> Decided:
        nonlocal seen
        seen, record = stored, stored.record
        if record.state in TERMINAL or record.cancel_requested:
            return None
        if record.state == QUEUED:
            waits_at = await _waiting_path(node_changes, record)
            return node_changes.transactions.cancel_queued(stored, waits_at, reason, node_changes.connection.now_ms())
        stat = await node_changes.connection.exists(node_changes.paths.asked_of(record.worker))
        now_ms = node_changes.connection.now_ms()
        return node_changes.transactions.ask_to_stop(stored, reason, now_ms, is_heard=stat is not None)

    changed = await node_changes.change(stored, decide, reason)
    if changed is not None:
        return CancelReply(State(changed.state), was_terminal=False, token=changed.token)
    record = seen.record
    return CancelReply(State(record.state), was_terminal=record.state in TERMINAL, token=record.token)


async def _waiting_path(node_changes: NodeChanges, record: Record) -> str:
    """Returns the path of a waiting job's node; if the job no longer waits, the transaction is refused."""
    paths = node_changes.paths
    if record.bucket == DELAYED:
        return paths.delayed_job(record.not_before_ms, record.id)
    bucket = BACK if record.bucket < 0 else bucket_name(record.bucket)
    path = paths.bucket(record.lane, bucket)
    for name in await node_changes.connection.children(path) or []:
        if posting_named(bucket, name).job_id == record.id:
            return f"{path}/{name}"
    return f"{path}/{record.id}"
