"""`/api/v1/schedules`: schedules, which create jobs by time."""

from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast import limits
from holdfast.core.capabilities import Capability
from holdfast.core.model import FIXED, QUADRATIC, BackoffRule
from holdfast.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from holdfast.ports import ScheduleApi, ScheduleSpec, ScheduleView
from holdfast.server.auth.permissions import Scope
from holdfast.server.backend import Backend
from holdfast.server.http import examples, schemas
from holdfast.server.http.instants import instant_ms, span_ms
from holdfast.server.http.job_bodies import payload_of, template_of
from holdfast.server.http.request import AdmittedRequest, Headers, HttpResponse, answer
from holdfast.server.http.routing import Route
from holdfast.server.request_checks import checked_name

_PATH = "/api/v1/schedules"
_CHANGED = (413, 415, 422, 501)
_SPAN = Meta(ge=0, le=limits.DELAY_MS_MAX // 1_000)


class TimesBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The times of a schedule: exactly one of `cron`, `every_s` and `at`."""

    cron: Annotated[str, Meta(max_length=256)] = ""
    every_s: Annotated[float, _SPAN] = 0
    at: schemas.Instant | None = None
    timezone: Annotated[str, Meta(max_length=64)] = "UTC"


class ScheduleBody(schemas.KindBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A schedule, which creates jobs of one kind: exactly one of `cron`, `every_s` and `at` is given."""

    name: schemas.Name | None = None
    payload: Any = msgspec.UNSET
    cron: Annotated[str, Meta(max_length=256)] = ""
    every_s: Annotated[float, _SPAN] = 0
    at: schemas.Instant | None = None
    timezone: Annotated[str, Meta(max_length=64)] = "UTC"
    catch_up: Literal["none", "latest", "all"] = "none"
    catch_up_window_s: Annotated[float, _SPAN] = limits.CATCH_UP_WINDOW_MS / 1_000
    overlap: Literal["allow", "skip", "cancel_running"] = "allow"
    jitter_s: Annotated[float, _SPAN] = 0


class NamedScheduleBody(ScheduleBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A schedule with its name."""

    name: schemas.Name


class PreviewBody(TimesBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The times of a schedule, and which ticks to preview."""

    after: schemas.Instant | None = None
    count: Annotated[int, Meta(ge=1, le=limits.PREVIEW_TICKS_MAX)] = 10


class PreviewFilters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which ticks to preview."""

    after: Annotated[str, Meta(max_length=64)] = ""
    count: Annotated[int, Meta(ge=1, le=limits.PREVIEW_TICKS_MAX)] = 10


class ScheduleFilters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A filter for schedules; `active` ones will create more jobs."""

    status: Literal["", "active", "paused", "ended"] = ""


class ScheduleResource(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule at one instant."""

    name: str
    status: Literal["active", "paused", "ended"]
    type: str
    queue: str
    priority: int
    max_attempts: int
    max_losses: int
    timeout_s: float
    backoff: schemas.BackoffBody
    payload: Any
    cron: str
    every_s: float
    at_ms: int
    timezone: str
    catch_up: str
    catch_up_window_s: float
    overlap: str
    jitter_s: float
    labels: dict[str, str]
    created_at_ms: int
    next_at_ms: int
    last_tick_ms: int
    last_job_id: str
    fired: int
    skipped: int
    missed: int


class Schedules(msgspec.Struct, frozen=True):
    """Schedules by name."""

    schedules: list[ScheduleResource]


class Triggered(msgspec.Struct, frozen=True):
    """The job that was created now."""

    id: str
    status: schemas.Status
    schedule: str


class Ticks(msgspec.Struct, frozen=True):
    """The next ticks."""

    ticks_ms: list[int]


class ScheduleRoutes:
    """Schedules over HTTP."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def _schedules(self) -> ScheduleApi:
        return self._backend.capability(self._backend.schedules, Capability.SCHEDULES)

    async def all(self, request: AdmittedRequest) -> HttpResponse:
        """Returns all schedules, or those with one status."""
        shown = [schedule_shape(view) for view in await self._schedules.all()]
        status = request.query.status if request.query is not None else ""
        return answer(Schedules([one for one in shown if not status or one.status == status]))

    async def create(self, request: AdmittedRequest) -> HttpResponse:
        """Creates or replaces the schedule that the body names."""
        return await self.make(request.content, request.content.name)

    async def make(self, body: ScheduleBody, name: str) -> HttpResponse:
        """Creates or replaces a schedule, and returns it with 201."""
        view = await self._schedules.set(spec_of(body, name))
        headers: Headers = [(b"location", f"{_PATH}/{name}".encode())]
        return answer(schedule_shape(view), 201, headers)

    async def make_once(self, body: ScheduleBody, name: str) -> HttpResponse:
        """Creates a schedule whose name is derived from a key; different content with the same key is refused."""
        with suppress(NotFoundError):
            if (await self._schedules.get(name)).spec != spec_of(body, name):
                message = f"the Idempotency-Key of {name!r} was used for a different schedule; use a new key"
                raise FailedPreconditionError(message, reason="REQUEST_ID_REUSED")
        return await self.make(body, name)

    async def set(self, request: AdmittedRequest) -> HttpResponse:
        """Replaces the schedule that the path names; returns 201 if there was none."""
        name = _name(request)
        if request.content.name not in {None, name}:
            message = f"name in the body must be {name!r} or absent, got {request.content.name!r}"
            raise InvalidArgumentError(message, reason="SCHEDULE_NAME_INVALID")
        try:
            await self._schedules.get(name)
        except NotFoundError:
            return await self.make(request.content, name)
        return answer(schedule_shape(await self._schedules.set(spec_of(request.content, name))))

    async def get(self, request: AdmittedRequest) -> HttpResponse:
        """Returns one schedule."""
        return answer(schedule_shape(await self._schedules.get(_name(request))))

    async def delete(self, request: AdmittedRequest) -> HttpResponse:
        """Deletes a schedule, but not its jobs."""
        await self._schedules.delete(_name(request))
        return HttpResponse(204)

    async def pause(self, request: AdmittedRequest) -> HttpResponse:
        """Pauses a schedule; ticks during the pause create no jobs."""
        return answer(schedule_shape(await self._schedules.pause(_name(request), is_paused=True)))

    async def resume(self, request: AdmittedRequest) -> HttpResponse:
        """Resumes a schedule from now on."""
        return answer(schedule_shape(await self._schedules.pause(_name(request), is_paused=False)))

    async def trigger(self, request: AdmittedRequest) -> HttpResponse:
        """Creates a job now."""
        name = _name(request)
        job_id = await self._schedules.trigger(name)
        headers: Headers = [(b"location", f"/api/v1/jobs/{job_id}".encode())]
        return answer(Triggered(job_id, "QUEUED", name), 202, headers)

    async def preview(self, request: AdmittedRequest) -> HttpResponse:
        """Returns the next ticks of an existing schedule."""
        filters = request.query or PreviewFilters()
        view = await self._schedules.get(_name(request))
        ticks = await self._schedules.preview(view.spec, instant_ms("after", filters.after), filters.count)
        return answer(Ticks(ticks))

    async def look_ahead(self, request: AdmittedRequest) -> HttpResponse:
        """Returns the next ticks of a schedule that need not exist."""
        body: PreviewBody = request.content
        spec = spec_of(
            ScheduleBody(type="preview", cron=body.cron, every_s=body.every_s, at=body.at, timezone=body.timezone),
            "preview",
        )
        return answer(Ticks(await self._schedules.preview(spec, instant_ms("after", body.after), body.count)))


def _name(request: AdmittedRequest) -> str:
    return checked_name("name", request.params["name"], reason="SCHEDULE_NAME_INVALID")


def _whole_second_ms(at_ms: int) -> int:
    """Rounds up to a whole second, because ticks are whole seconds."""
    return -(-at_ms // 1_000) * 1_000


def spec_of(body: ScheduleBody, name: str) -> ScheduleSpec:
    """Converts a body to a schedule."""
    return ScheduleSpec(
        name,
        template_of(body),
        payload_of(body.payload),
        body.cron,
        span_ms(body.every_s),
        _whole_second_ms(instant_ms("at", body.at)),
        body.timezone,
        body.catch_up,
        span_ms(body.catch_up_window_s),
        body.overlap,
        span_ms(body.jitter_s),
        tuple(sorted(body.labels.items())),
    )


def schedule_shape(view: ScheduleView) -> ScheduleResource:
    """Converts a schedule to its JSON shape, with every field set."""
    spec, template = view.spec, view.spec.template
    return ScheduleResource(
        name=spec.name,
        status="paused" if view.is_paused else "active" if view.next_ms else "ended",
        type=template.type,
        queue=template.queue,
        priority=template.priority,
        max_attempts=template.max_attempts,
        max_losses=template.max_losses,
        timeout_s=template.timeout_ms / 1_000,
        backoff=backoff_shape(template.backoff),
        payload=schemas.shown(spec.payload),
        cron=spec.cron,
        every_s=spec.every_ms / 1_000,
        at_ms=spec.at_ms,
        timezone=spec.timezone,
        catch_up=spec.catch_up,
        catch_up_window_s=spec.catch_up_window_ms / 1_000,
        overlap=spec.overlap,
        jitter_s=spec.jitter_ms / 1_000,
        labels=dict(spec.labels),
        created_at_ms=view.created_ms,
        next_at_ms=view.next_ms,
        last_tick_ms=view.last_tick_ms,
        last_job_id=view.last_job_id,
        fired=view.fired,
        skipped=view.skipped,
        missed=view.missed,
    )


_KINDS: dict[int, Literal["fixed", "exponential", "quadratic"]] = {FIXED: "fixed", QUADRATIC: "quadratic"}


def backoff_shape(backoff: BackoffRule) -> schemas.BackoffBody:
    """Converts the back-off of failed jobs to its JSON shape."""
    kind = _KINDS.get(backoff.kind, "exponential")
    return schemas.BackoffBody(kind, backoff.base_ms / 1_000, backoff.max_ms / 1_000)


def routes(schedules: ScheduleRoutes) -> list[Route]:
    """Returns the routes of this module."""

    def route(method: str, path: str, handler: Any, summary: str, **more: Any) -> Route:  # noqa: ANN401 - as Route
        scope = Scope.READ if method == "GET" else Scope.ADMIN
        more = {"scope": scope, "problems": _CHANGED if "body" in more else (422, 501), **more}
        return Route(method=method, path=path, handler=handler, summary=summary, tag="schedules", **more)

    one = f"{_PATH}/{{name}}"
    return [
        route("GET", _PATH, schedules.all, "List the schedules", query=ScheduleFilters, answers={200: Schedules}),
        route(
            "POST",
            _PATH,
            schedules.create,
            "Create or replace a schedule",
            body=NamedScheduleBody,
            answers={201: ScheduleResource},
            problems=(*_CHANGED, 429),
            examples=examples.SCHEDULE,
        ),
        route("GET", one, schedules.get, "Get one schedule", answers={200: ScheduleResource}),
        route(
            "PUT",
            one,
            schedules.set,
            "Create or replace the schedule with this name",
            body=ScheduleBody,
            answers={200: ScheduleResource, 201: ScheduleResource},
        ),
        route("DELETE", one, schedules.delete, "Delete a schedule, but not its jobs", answers={204: None}),
        route("POST", f"{one}/pause", schedules.pause, "Pause a schedule", answers={200: ScheduleResource}),
        route(
            "POST", f"{one}/resume", schedules.resume, "Resume a schedule from now on", answers={200: ScheduleResource}
        ),
        route("POST", f"{one}/trigger", schedules.trigger, "Create a job of a schedule now", answers={202: Triggered}),
        route(
            "GET",
            f"{one}/preview",
            schedules.preview,
            "Get the next ticks of a schedule",
            query=PreviewFilters,
            answers={200: Ticks},
        ),
        route(
            "POST",
            "/api/v1/schedule-preview",
            schedules.look_ahead,
            "Compute the next ticks without creating a schedule",
            scope=Scope.READ,
            body=PreviewBody,
            answers={200: Ticks},
            examples=examples.PREVIEW,
        ),
    ]
