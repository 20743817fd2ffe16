"""`/api/v1/jobs`: submitting, reading, canceling and retrying jobs."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from holdfast import limits
from holdfast.core.commands import Refusal, Submitted
from holdfast.core.history import Entry
from holdfast.core.lifecycle import State
from holdfast.core.model import Template
from holdfast.core.trace_context import TraceContext
from holdfast.errors import AbortedError, InvalidArgumentError, NotFoundError
from holdfast.ports import JobQuery
from holdfast.server.attempts import attempts_in, attempts_of
from holdfast.server.auth.permissions import Scope
from holdfast.server.backend import Backend
from holdfast.server.http import examples, schemas
from holdfast.server.http.instants import instant_ms
from holdfast.server.http.job_bodies import context_of, draft_of, template_of
from holdfast.server.http.problems import problem_of
from holdfast.server.http.request import AdmittedRequest, Headers, HttpResponse, answer
from holdfast.server.http.routing import Route
from holdfast.server.request_checks import checked_id

#: Names of the five states, including those of other queues; filters accept all of them.
STATUS_ALIASES = {
    **{state.name.lower(): state for state in State},
    "pending": State.QUEUED,
    "claimed": State.QUEUED,
    "waiting": State.QUEUED,
    "scheduled": State.QUEUED,
    "active": State.RUNNING,
    "leased": State.RUNNING,
    "completed": State.DONE,
    "succeeded": State.DONE,
    "dead": State.FAILED,
    "cancelled": State.CANCELED,
}
_ACCEPTED = 202
_SOME_REFUSED = 207


class JobFilters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters for jobs; empty ones match every job, and a job must have all of the labels."""

    status: list[Annotated[str, Meta(max_length=200)]] = []
    queue: Annotated[str, Meta(max_length=limits.NAME_CHARS_MAX)] = ""
    type: Annotated[str, Meta(max_length=limits.TYPE_CHARS_MAX)] = ""
    label: Annotated[list[str], Meta(max_length=limits.LABELS_MAX)] = []
    created_from: Annotated[str, Meta(max_length=64)] = ""
    created_before: Annotated[str, Meta(max_length=64)] = ""
    oldest_first: bool = False
    cursor: Annotated[str, Meta(max_length=8 * limits.JOB_ID_CHARS_MAX)] = ""
    limit: Annotated[int, Meta(ge=1, le=limits.PAGE_SIZE_MAX)] = limits.PAGE_SIZE_DEFAULT


class WaitFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The time to wait for the end of a job."""

    wait_s: Annotated[float, Meta(ge=0, le=limits.HTTP_WAIT_MS_MAX // 1_000)] = 0


class Retried(msgspec.Struct, frozen=True):
    """The new job of a retry."""

    id: str
    status: schemas.Status
    retry_of: str


class JobRoutes:
    """Jobs over HTTP."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._jobs = backend.jobs
        #: Idempotency keys of requests in progress.
        self._under_way: set[str] = set()

    async def submit(self, request: AdmittedRequest) -> HttpResponse:
        """Submits one job or several."""
        key = key_of(request)
        if not key:
            return await self._submit(request, key)
        with self.only(key):
            return await self._submit(request, key)

    async def _submit(self, request: AdmittedRequest, key: str) -> HttpResponse:
        body, context = request.content, context_of(request.head)
        submit = self._submit_many if isinstance(body, schemas.JobsBody) else self.submit_one
        return await submit(body, key, context)

    async def submit_one(self, body: schemas.JobBody, key: str, context: TraceContext | None) -> HttpResponse:
        """Submits one job, and returns it with 202; raises the error of a refusal."""
        template = template_of(body)
        submitted = await self._jobs.submit([template], [draft_of(body, 0, key, context)])
        if submitted.refusals:
            raise submitted.refusals[0].error()
        job_id, status = submitted.job_ids[0], await self._status(submitted, 0)
        accepted = schemas.Accepted(
            job_id, status, body.type, body.queue, body.priority, submitted.at_ms, bool(submitted.existing)
        )
        return answer(accepted, _ACCEPTED, location(job_id))

    async def _submit_many(self, body: schemas.JobsBody, key: str, context: TraceContext | None) -> HttpResponse:
        templates: dict[Template, int] = {}
        drafts = []
        for index, job in enumerate(body.jobs):
            number = templates.setdefault(template_of(job), len(templates))
            own_key = f"{key}:{index}" if key and not job.request_id else ""
            drafts.append(draft_of(job, number, own_key, context))
        submitted = await self._jobs.submit(list(templates), drafts)
        if submitted.refusals or submitted.existing:
            rows = [await self._row(submitted, index) for index in range(len(drafts))]
        else:
            rows = [schemas.AcceptedOrNot(job_id, "QUEUED") for job_id in submitted.job_ids]
        refused = len(submitted.refusals)
        many = schemas.AcceptedJobs(rows, len(rows) - refused, refused, submitted.at_ms)
        return answer(many, _SOME_REFUSED if refused else _ACCEPTED)

    async def _row(self, submitted: Submitted, index: int) -> schemas.AcceptedOrNot:
        refusal: Refusal | None = submitted.refusals.get(index)
        if refusal is not None:
            return schemas.AcceptedOrNot(problem=problem_of(refusal.error()))
        is_existing = index in submitted.existing
        return schemas.AcceptedOrNot(submitted.job_ids[index], await self._status(submitted, index), is_existing)

    async def _status(self, submitted: Submitted, index: int) -> Any:  # noqa: ANN401 - one of five names
        """Returns QUEUED for a new job, and the current state of an existing one."""
        if index not in submitted.existing:
            return "QUEUED"
        return (await self._jobs.get(submitted.job_ids[index])).state.name

    @contextmanager
    def only(self, key: str) -> Iterator[None]:
        """Refuses other requests with the same key while the block runs."""
        if not key:
            yield
            return
        if key in self._under_way:
            message = "a request with this Idempotency-Key is still in progress; try again in a moment"
            raise AbortedError(message, reason="REQUEST_UNDER_WAY")
        self._under_way.add(key)
        try:
            yield
        finally:
            self._under_way.discard(key)

    async def find(self, request: AdmittedRequest) -> HttpResponse:
        """Returns matching jobs, newest first by default."""
        filters: JobFilters = request.query
        found = await self._jobs.find(query_of(filters), filters.cursor, filters.limit)
        return answer(schemas.Jobs([schemas.job_shape(view) for view in found.jobs], found.cursor))

    async def get(self, request: AdmittedRequest) -> HttpResponse:
        """Returns one job with its payload."""
        return await self.whole(request.params["id"])

    async def whole(self, job_id: str) -> HttpResponse:
        """Returns one job with its payload, by its id."""
        view = await self._jobs.get(checked_id(job_id))
        return answer(schemas.whole_job(view, await self._jobs.payload(view.id)))

    async def result(self, request: AdmittedRequest) -> HttpResponse:
        """Returns the result, or that there is none yet; waits for it if `wait_s` is given."""
        job_id = checked_id(request.params["id"])
        if request.query is not None and request.query.wait_s:
            try:
                async with asyncio.timeout(request.query.wait_s):
                    return answer(schemas.result_shape(*await self._jobs.settled(job_id)))
            except TimeoutError:
                pass
        view = await self._jobs.get(job_id)
        return answer(schemas.result_shape(view, await self._jobs.result(job_id)))

    async def cancel(self, request: AdmittedRequest) -> HttpResponse:
        """Cancels a queued job; requests a running one to stop."""
        job_id = checked_id(request.params["id"])
        reply = await self._jobs.cancel(job_id, request.content.reason)
        status: Any = reply.state.name
        return answer(schemas.Canceled(job_id, status, reply.was_terminal))

    async def retry(self, request: AdmittedRequest) -> HttpResponse:
        """Submits a finished job again as a new job."""
        job_id, key = checked_id(request.params["id"]), key_of(request)
        with self.only(key):
            new_id = await self._jobs.retry(job_id, key)
            # With a key it may be the job of an earlier request, in any state.
            status: Any = (await self._jobs.get(new_id)).state.name if key else "QUEUED"
        return answer(Retried(new_id, status, job_id), _ACCEPTED, location(new_id))

    async def history(self, request: AdmittedRequest) -> HttpResponse:
        """Returns all events of a job, and its attempts from the same read of the history."""
        job_id = checked_id(request.params["id"])
        count = await self._attempt_count(job_id)
        entries = await self._entries(job_id)
        return answer(schemas.history_shape(job_id, entries, attempts_in(entries, count)))

    async def _attempt_count(self, job_id: str) -> int:
        """Returns the number of attempts; 0 if the job was evicted, although its history may remain."""
        try:
            return (await self._jobs.get(job_id)).attempts
        except NotFoundError:
            return 0

    async def _entries(self, job_id: str) -> list[Entry]:
        """Returns the history, or raises an error if the backend has none."""
        return await self._backend.history.history(job_id)

    async def attempts(self, request: AdmittedRequest) -> HttpResponse:
        """Returns every attempt of a job that the backend knows."""
        view = await self._jobs.get(checked_id(request.params["id"]))
        found = await attempts_of(self._jobs, self._entries, view)
        return answer(schemas.attempts_shape(view.id, found))

    async def why(self, request: AdmittedRequest) -> HttpResponse:
        """Explains the current state of a job."""
        job_id = checked_id(request.params["id"])
        return answer(schemas.why_shape(job_id, await self._jobs.explain(job_id)))


def routes(jobs: JobRoutes) -> list[Route]:
    """Returns the routes of this module."""
    return [
        Route(
            method="POST",
            path="/api/v1/jobs",
            scope=Scope.SUBMIT,
            handler=jobs.submit,
            summary="Submit one job, or several as one event",
            body=schemas.JobBody,
            bodies_by_name={"jobs": schemas.JobsBody},
            answers={_ACCEPTED: (schemas.Accepted, schemas.AcceptedJobs), _SOME_REFUSED: schemas.AcceptedJobs},
            problems=(409, 413, 415, 422),
            examples=examples.SUBMIT,
        ),
        Route(
            method="GET",
            path="/api/v1/jobs",
            scope=Scope.READ,
            handler=jobs.find,
            summary="Find jobs",
            query=JobFilters,
            answers={200: schemas.Jobs},
        ),
        Route(
            method="GET",
            path="/api/v1/jobs/{id}",
            scope=Scope.READ,
            handler=jobs.get,
            summary="Get one job with its payload",
            answers={200: schemas.WholeJob},
        ),
        Route(
            method="GET",
            path="/api/v1/jobs/{id}/result",
            scope=Scope.READ,
            handler=jobs.result,
            summary="Get the result of a job, or wait for it",
            query=WaitFilter,
            answers={200: schemas.ResultResource},
            problems=(504,),
        ),
        Route(
            method="POST",
            path="/api/v1/jobs/{id}/cancel",
            scope=Scope.SUBMIT,
            handler=jobs.cancel,
            summary="Cancel a queued job, or request a running one to stop",
            body=schemas.ReasonBody,
            is_body_optional=True,
            answers={200: schemas.Canceled},
            problems=(413, 415),
            examples=examples.REASON,
        ),
        Route(
            method="POST",
            path="/api/v1/jobs/{id}/retry",
            scope=Scope.SUBMIT,
            handler=jobs.retry,
            summary="Submit a finished job again as a new job",
            answers={_ACCEPTED: Retried},
            problems=(409, 422),
        ),
        Route(
            method="GET",
            path="/api/v1/jobs/{id}/history",
            scope=Scope.READ,
            handler=jobs.history,
            summary="Get all events of a job",
            answers={200: schemas.History},
            problems=(501,),
        ),
        Route(
            method="GET",
            path="/api/v1/jobs/{id}/attempts",
            scope=Scope.READ,
            handler=jobs.attempts,
            summary="Get the attempts of a job, with the tracebacks of failed ones",
            answers={200: schemas.Attempts},
        ),
        Route(
            method="GET",
            path="/api/v1/jobs/{id}/why",
            scope=Scope.READ,
            handler=jobs.why,
            summary="Explain the current state of a job",
            answers={200: schemas.Why},
        ),
    ]


def location(job_id: str) -> Headers:
    """Returns the Location header of a new job."""
    return [(b"location", f"/api/v1/jobs/{job_id}".encode())]


def key_of(request: AdmittedRequest) -> str:
    """Returns the idempotency key of a request; empty if there is none."""
    key = request.head.header(b"idempotency-key")
    if len(key) > limits.REQUEST_ID_CHARS_MAX or not key.isascii() or not key.isprintable():
        rule = f"at most {limits.REQUEST_ID_CHARS_MAX} printable ASCII characters"
        raise InvalidArgumentError(f"Idempotency-Key must be {rule}", reason="REQUEST_ID_INVALID")
    return key


def query_of(filters: JobFilters) -> JobQuery:
    """Converts filters to a query."""
    return JobQuery(
        states_of(filters.status),
        filters.queue,
        filters.type,
        dict(map(_label, filters.label)),
        instant_ms("created_from", filters.created_from),
        instant_ms("created_before", filters.created_before),
        filters.oldest_first,
    )


def states_of(given: list[str]) -> frozenset[State]:
    """Converts names of states, several separated by commas; an empty `status=` means all states."""
    names = [name.strip().lower() for text in given if text for name in text.split(",")]
    unknown = [name for name in names if name not in STATUS_ALIASES]
    if unknown:
        known = ", ".join(STATUS_ALIASES)
        message = f"status must be among {known}, got {unknown[0][:80]!r}"
        raise InvalidArgumentError(message, reason="STATUS_INVALID")
    return frozenset(STATUS_ALIASES[name] for name in names)


def _label(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise InvalidArgumentError(f"label must be name:value, got {text[:80]!r}", reason="LABEL_INVALID")
    return name, value
