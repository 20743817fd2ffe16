"""The table of the wire's methods: the scope and the memory that each needs, and its handler over a backend's ports.

A handler takes the request and returns the response or, for a stream, an asynchronous iterator of responses. It raises
`HoldfastError` to refuse a request.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from holdfast import limits
from holdfast.core.capabilities import Capabilities, Capability
from holdfast.core.commands import CancelReply, Submitted
from holdfast.core.history import Entry
from holdfast.ports import AdminApi, FeedPart, JobView, ScheduleApi, ScheduleView, SearchPage
from holdfast.server.auth.permissions import Scope
from holdfast.server.backend import Backend
from holdfast.server.request_checks import checked_id, checked_name, checked_size
from holdfast.server.wire.direct_calls import Begin, checked_submission, direct_calls
from holdfast.wire import methods
from holdfast.wire.messages import encode
from holdfast.wire.methods import WireMethod

R = TypeVar("R")
Handler = Callable[[Any], Any]

#: Returns the largest memory that the reply to a request may take. The backends share payloads, outputs and labels with
#: their replies or copy them, so these are counted in full.
ReplyBytes = Callable[[Any], int]

#: The labels and headers of a job, in UTF-8, and everything else in its view.
_VIEW_BYTES = 8 * limits.LABELS_MAX * (limits.LABEL_KEY_CHARS_MAX + limits.LABEL_VALUE_CHARS_MAX) + 8_192
#: An output, its summary and its numbers.
_RESULT_BYTES = limits.OUTPUT_BYTES_MAX + 8_192
_SMALL_BYTES = 4_096
#: An id, or a refusal that quotes a key of the job.
_SUBMITTED_JOB_BYTES = 512


def _up_to(size: int) -> ReplyBytes:
    return lambda _: size


_SMALL, _PAYLOAD, _LIST = _up_to(_SMALL_BYTES), _up_to(limits.PAYLOAD_BYTES_MAX), _up_to(limits.BATCH_BYTES_MAX)

#: Entries in one part of the feed, so that it stays below the size limit of a message.
_ENTRIES_MAX = 1_000


class ServedMethod(msgspec.Struct, frozen=True):
    """One row of the table."""

    name: str
    #: The scope that a caller needs.
    scope: Scope
    decode: Callable[[msgspec.Raw], Any]
    handler: Handler
    is_stream: bool = False
    #: Starts the call without a task, if the backend can.
    begin: Begin | None = None
    #: The memory to reserve before a call starts; None for streams, and for calls that may start again.
    reply_bytes: ReplyBytes | None = _SMALL
    #: Not 0: the call changes nothing, and starts again if there was no room for its reply; it then reserves this.
    repeated_bytes: int = 0


Table = Mapping[str, ServedMethod]
_Rows = dict[WireMethod[Any, Any], tuple[Scope, Handler, ReplyBytes | None]]
#: The largest replies of the methods that read one thing or wait for the end of a job. Lists are not here: a backend
#: may compute a whole page before it is known whether the client reads.
_REPEATED_BYTES = {
    methods.GET: _VIEW_BYTES,
    methods.RESULT: _RESULT_BYTES,
    methods.PAYLOAD: limits.PAYLOAD_BYTES_MAX,
    methods.EXPLAIN: _SMALL_BYTES,
    methods.SETTLED: _VIEW_BYTES + _RESULT_BYTES,
    methods.CAPABILITIES: _SMALL_BYTES,
    methods.STATS: _SMALL_BYTES,
    methods.GET_SCHEDULE: limits.PAYLOAD_BYTES_MAX,
    methods.PREVIEW_SCHEDULE: _SMALL_BYTES,
}


def table(backend: Backend) -> Table:
    """Returns the methods by their names on the wire."""
    direct = direct_calls(backend.jobs)
    rows = {**_JobMethods(backend).rows(), **_AdminMethods(backend).rows(), **_ScheduleMethods(backend).rows()}
    return {
        method.name: ServedMethod(
            method.name,
            scope,
            method.decode_request,
            handler,
            method.is_stream,
            direct.get(method),
            reply_bytes,
            _REPEATED_BYTES.get(method, 0),
        )
        for method, (scope, handler, reply_bytes) in rows.items()
    }


class _JobMethods:
    """The operations on jobs."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._jobs = backend.jobs

    def rows(self) -> _Rows:
        jobs = self._jobs
        return {
            methods.SUBMIT: (Scope.SUBMIT, self._submit, _submission_bytes),
            methods.GET: (Scope.READ, _by_id(jobs.get), None),
            methods.RESULT: (Scope.READ, _by_id(jobs.result), None),
            methods.PAYLOAD: (Scope.READ, _by_id(jobs.payload), None),
            methods.EXPLAIN: (Scope.READ, _by_id(jobs.explain), None),
            methods.FIND: (Scope.READ, self._find, _LIST),
            methods.SETTLED: (Scope.READ, _by_id(jobs.settled), None),
            methods.WATCH: (Scope.READ, self._watch, None),
            methods.CANCEL: (Scope.SUBMIT, self._cancel, _SMALL),
            methods.RETRY: (Scope.SUBMIT, self._retry, _SMALL),
            methods.HISTORY: (Scope.READ, self._history, _LIST),
            methods.FEED: (Scope.READ, self._feed, None),
        }

    async def _submit(self, request: methods.Submission) -> Submitted:
        checked_submission(request)
        return await self._jobs.submit(request.templates, request.drafts)

    async def _find(self, request: methods.JobSearch) -> SearchPage:
        """Returns matching jobs; fewer than requested if their labels would not fit into one message."""
        size = checked_size(request.size)
        while True:
            page = await self._jobs.find(request.query, request.cursor, size)
            fitting = _fitting(page.jobs)
            if fitting == len(page.jobs):
                return page
            size = max(1, fitting)

    def _watch(self, request: methods.OneJob) -> AsyncIterator[JobView]:
        return self._jobs.watch(checked_id(request.job_id))

    async def _cancel(self, request: methods.JobCancel) -> CancelReply:
        return await self._jobs.cancel(checked_id(request.job_id), request.reason)

    async def _retry(self, request: methods.JobRetry) -> str:
        return await self._jobs.retry(checked_id(request.job_id), request.request_id)

    async def _history(self, request: methods.OneJob) -> list[Entry]:
        return await self._backend.history.history(checked_id(request.job_id))

    async def _feed(self, request: methods.FeedStart) -> AsyncIterator[FeedPart]:
        feed = self._backend.capability(self._backend.feed, Capability.FEED)
        async for part in feed.feed(request.after):
            for piece in _pieces(part):
                yield piece


def _by_id(call: Callable[[str], Awaitable[R]]) -> Callable[[methods.OneJob], Awaitable[R]]:
    async def handler(request: methods.OneJob) -> R:
        return await call(checked_id(request.job_id))

    return handler


def _submission_bytes(request: methods.Submission) -> int:
    return _SUBMITTED_JOB_BYTES * len(request.drafts)


def _fitting(jobs: list[JobView]) -> int:
    """Returns how many of the jobs, at least one, fit into a message; keeps none of them encoded."""
    size = 0
    for count, job in enumerate(jobs):
        size += len(encode(job))
        if count and size > limits.BATCH_BYTES_MAX:
            return count
    return len(jobs)


def _pieces(part: FeedPart) -> list[FeedPart]:
    """Splits a part of the feed; each piece has the position up to which the feed is complete."""
    entries, pieces = part.entries, list[FeedPart]()
    while len(entries) > _ENTRIES_MAX:
        sent, entries = entries[:_ENTRIES_MAX], entries[_ENTRIES_MAX:]
        pieces.append(FeedPart(sent, entries[0].position - 1))
    return [*pieces, FeedPart(entries, part.position)]


class _AdminMethods:
    """The operations for administrators."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def rows(self) -> _Rows:
        return {
            methods.CAPABILITIES: (Scope.READ, self._capabilities, None),
            methods.STATS: (Scope.READ, lambda _: self._admin.stats(), None),
            methods.QUEUES: (Scope.READ, lambda _: self._admin.queues(), _LIST),
            methods.SET_QUEUE_MODE: (Scope.ADMIN, self._set_mode, _SMALL),
            methods.PURGE: (Scope.ADMIN, self._purge, _SMALL),
            methods.WORKERS: (Scope.READ, lambda _: self._admin.workers(), _LIST),
            methods.DRAIN_WORKER: (Scope.ADMIN, self._drain, _SMALL),
        }

    @property
    def _admin(self) -> AdminApi:
        return self._backend.capability(self._backend.admin, Capability.ADMINISTRATION)

    async def _capabilities(self, _: methods.Request) -> Capabilities:
        """Returns the capabilities of the backend, even if it lacks administration."""
        return self._backend.capabilities

    async def _set_mode(self, request: methods.QueueChange) -> None:
        await self._admin.set_queue_mode(checked_name("queue", request.queue), request.mode, request.reason)

    async def _purge(self, request: methods.QueuePurge) -> int:
        return await self._admin.purge(checked_name("queue", request.queue), request.reason)

    async def _drain(self, request: methods.OneWorker) -> None:
        await self._admin.drain_worker(checked_name("worker_id", request.worker_id))


class _ScheduleMethods:
    """The operations on schedules."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def rows(self) -> _Rows:
        return {
            methods.SET_SCHEDULE: (Scope.ADMIN, lambda request: self._schedules.set(request.spec), _PAYLOAD),
            methods.GET_SCHEDULE: (Scope.READ, lambda request: self._schedules.get(_name(request.name)), None),
            methods.SCHEDULES: (Scope.READ, lambda _: self._schedules.all(), _LIST),
            methods.DELETE_SCHEDULE: (Scope.ADMIN, lambda request: self._schedules.delete(_name(request.name)), _SMALL),
            methods.PAUSE_SCHEDULE: (Scope.ADMIN, self._pause, _PAYLOAD),
            methods.TRIGGER_SCHEDULE: (
                Scope.ADMIN,
                lambda request: self._schedules.trigger(_name(request.name)),
                _SMALL,
            ),
            methods.PREVIEW_SCHEDULE: (Scope.READ, self._preview, None),
        }

    @property
    def _schedules(self) -> ScheduleApi:
        return self._backend.capability(self._backend.schedules, Capability.SCHEDULES)

    async def _pause(self, request: methods.SchedulePause) -> ScheduleView:
        return await self._schedules.pause(_name(request.name), is_paused=request.is_paused)

    async def _preview(self, request: methods.SchedulePreview) -> list[int]:
        return await self._schedules.preview(request.spec, request.after_ms, request.count)


def _name(name: str) -> str:
    return checked_name("name", name, reason="SCHEDULE_NAME_INVALID")
