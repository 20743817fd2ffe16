"""Short forms: `POST /api/jobs`, `GET /jobs?status=` and `GET /job?job_id=`.

Here `type` is `once` or `cron`, and `job_type` is the type of the job; any other `type` is itself the type of the job.
A cron job is a schedule: it is listed among the jobs, with the status `active`.
"""

import hashlib
from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast import limits
from holdfast.core.model import BackoffRule
from holdfast.errors import InvalidArgumentError, NotFoundError
from holdfast.ports import JobQuery
from holdfast.server.auth.permissions import Scope
from holdfast.server.backend import Backend
from holdfast.server.http import schemas
from holdfast.server.http.job_bodies import context_of
from holdfast.server.http.jobs import JobRoutes, key_of, states_of
from holdfast.server.http.request import AdmittedRequest, HttpResponse, answer
from holdfast.server.http.routing import Route
from holdfast.server.http.schedules import ScheduleBody, ScheduleResource, ScheduleRoutes, backoff_shape, schedule_shape
from holdfast.server.http.strict_json import encode

_PRIORITIES = {"low": 2, "normal": limits.PRIORITY_DEFAULT, "high": 8}
_DEFAULT_TYPE = "echo"


class ShortBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job to run once, or by cron."""

    payload: Any = msgspec.UNSET
    type: schemas.Name = "once"
    job_type: schemas.Name = _DEFAULT_TYPE
    priority: (
        Literal["low", "normal", "high"] | Annotated[int, Meta(ge=limits.PRIORITY_MIN, le=limits.PRIORITY_MAX)]
    ) = limits.PRIORITY_DEFAULT
    cron_expr: Annotated[str, Meta(max_length=256)] = ""
    cron: Annotated[str, Meta(max_length=256)] = ""
    schedule: Annotated[str, Meta(max_length=256)] = ""
    timezone: Annotated[str, Meta(max_length=64)] = "UTC"
    queue: schemas.Name = limits.QUEUE_DEFAULT
    delay_s: schemas.Seconds = 0
    #: The default of the topology if absent.
    max_attempts: Annotated[int, Meta(ge=1, le=limits.ATTEMPTS_MAX)] | None = None


class ShortFilters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Filters for jobs."""

    status: list[Annotated[str, Meta(max_length=200)]] = []
    cursor: Annotated[str, Meta(max_length=8 * limits.JOB_ID_CHARS_MAX)] = ""
    limit: Annotated[int, Meta(ge=1, le=limits.PAGE_SIZE_MAX)] = limits.PAGE_SIZE_DEFAULT


class IdFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The id of a job."""

    job_id: Annotated[str, Meta(min_length=1, max_length=limits.JOB_ID_CHARS_MAX)]


class ShortForms:
    """The short forms, translated to the API itself."""

    def __init__(self, backend: Backend, jobs: JobRoutes, schedules: ScheduleRoutes) -> None:
        self._backend = backend
        self._jobs = jobs
        self._schedules = schedules
        self._retries = backend.short_retries

    async def submit(self, request: AdmittedRequest) -> HttpResponse:
        """Submits one job, or creates a schedule."""
        body: ShortBody = request.content
        kind = body.job_type if body.type in {"once", "cron"} else body.type
        priority = _PRIORITIES[body.priority] if isinstance(body.priority, str) else body.priority
        cron, key = body.cron_expr or body.cron or body.schedule, key_of(request)
        if body.type == "cron" and not cron:
            raise InvalidArgumentError("expected cron_expr for a job of type cron, got none", reason="CRON_INVALID")
        shared: dict[str, Any] = {
            "type": kind,
            "queue": body.queue,
            "priority": priority,
            "max_attempts": body.max_attempts or self._retries.max_attempts,
            "backoff": None if self._retries.backoff == BackoffRule() else backoff_shape(self._retries.backoff),
        }
        if not cron or body.type == "once":
            job = schemas.JobBody(**shared, payload=body.payload, delay_s=body.delay_s)
            with self._jobs.only(key):
                return _with_id(await self._jobs.submit_one(job, key, context_of(request.head)))
        request.caller.require(Scope.ADMIN)  # as every change of a schedule
        plan = ScheduleBody(**shared, payload=body.payload, cron=cron, timezone=body.timezone)
        make = self._schedules.make_once if key else self._schedules.make
        with self._jobs.only(key):
            return _with_id(await make(plan, _name_of(plan, key)))

    async def find(self, request: AdmittedRequest) -> HttpResponse:
        """Returns jobs by status; the first page of all jobs, or of `active` ones, includes schedules."""
        filters: ShortFilters = request.query or ShortFilters()
        states = states_of(filters.status)
        found = await self._backend.jobs.find(JobQuery(states), filters.cursor, filters.limit)
        rows: list[Any] = [schemas.job_shape(view) for view in found.jobs]
        is_active = any(name.strip().lower() == "active" for text in filters.status for name in text.split(","))
        if self._backend.schedules is not None and not filters.cursor and (is_active or not states):
            rows += [_cron_job(one) for one in map(schedule_shape, await self._backend.schedules.all()) if one.cron]
        return answer({"jobs": rows, "next_cursor": found.cursor})

    async def get(self, request: AdmittedRequest) -> HttpResponse:
        """Returns one job, or the schedule with that name."""
        job_id = request.query.job_id
        if self._backend.schedules is not None:
            with suppress(NotFoundError):
                return answer(_cron_job(schedule_shape(await self._backend.schedules.get(job_id))))
        return await self._jobs.whole(job_id)


def _name_of(plan: ScheduleBody, key: str) -> str:
    """Derives the name from the key, or else from the plan, so that a repeated request creates no second schedule."""
    content = b"key " + key.encode() if key else encode(plan)
    return f"cron-{hashlib.sha256(content).hexdigest()[:16]}"


def _with_id(made: HttpResponse) -> HttpResponse:
    """Returns the response with the id also as `job_id`, its name in the short forms."""
    fields = msgspec.json.decode(made.body)
    job_id = fields.get("id") or fields["name"]
    return answer({"job_id": job_id, "id": job_id, **fields}, made.status, made.headers)


def _cron_job(schedule: ScheduleResource) -> dict[str, Any]:
    return {
        "id": schedule.name,
        "status": schedule.status,
        "type": "cron",
        "job_type": schedule.type,
        "cron_expr": schedule.cron,
        "payload": schedule.payload,
        "priority": schedule.priority,
        "queue": schedule.queue,
        "created_at_ms": schedule.created_at_ms,
        "next_at_ms": schedule.next_at_ms,
    }


def routes(short: ShortForms) -> list[Route]:
    """Returns the routes of this module."""

    def route(method: str, path: str, scope: Scope, handler: Any, summary: str, **more: Any) -> Route:  # noqa: ANN401
        return Route(
            method=method, path=path, scope=scope, handler=handler, summary=summary, is_short_form=True, **more
        )

    return [
        route("POST", "/api/jobs", Scope.SUBMIT, short.submit, "Submit a job or a cron job", body=ShortBody),
        route("GET", "/api/jobs", Scope.READ, short.find, "List jobs by status", query=ShortFilters),
        route("GET", "/jobs", Scope.READ, short.find, "List jobs by status", query=ShortFilters),
        route("GET", "/job", Scope.READ, short.get, "Get one job", query=IdFilter),
    ]
