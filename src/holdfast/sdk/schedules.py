"""Schedules of an app: the declarations by `@app.schedule`, and the methods for existing schedules."""

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypedDict, TypeVar, overload

from holdfast import limits
from holdfast.errors import InvalidArgumentError
from holdfast.ports import ScheduleSpec, ScheduleView
from holdfast.sdk.declaration import is_redefinition
from holdfast.sdk.function import JobFunction
from holdfast.sdk.job import Job
from holdfast.sdk.sync_async import async_method, sync_method

if TYPE_CHECKING:
    from holdfast.core.model import Template
    from holdfast.sdk.codec import Codec
    from holdfast.sdk.connection import AppConnection
    from holdfast.sdk.portal import Portal

P = ParamSpec("P")
C = TypeVar("C")
R = TypeVar("R")
_SECOND_MS = 1_000


class ScheduleRules(TypedDict, total=False):
    """The options of `@app.schedule`, beside its cron expression."""

    tz: str
    every: timedelta | float
    at: datetime
    name: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    labels: Mapping[str, str]
    catch_up: str
    catch_up_window_s: float
    overlap: str
    jitter_s: float


class ScheduleDecorator:
    """The result of `app.schedule(...)`: takes a job function, or makes one from a function."""

    def __init__(self, make: Callable[[Callable[..., Any]], JobFunction[Any, Any, Any]]) -> None:
        self._make = make

    @overload
    def __call__(self, function: JobFunction[P, C, R]) -> JobFunction[P, C, R]: ...  # type: ignore[overload-overlap] # the first that fits is meant
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> JobFunction[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> JobFunction[P, R, R]: ...
    def __call__(self, function: Callable[..., Any]) -> JobFunction[Any, Any, Any]:
        return self._make(function)


class DeclaredSchedules:
    """The schedules that an app declares, in their order, with unique names."""

    def __init__(self) -> None:
        self._declared: dict[str, tuple[Callable[..., Any], ScheduleSpec, tuple[Sequence[Any], Mapping[str, Any]]]] = {}

    def add(self, function: Callable[..., Any], template: "Template", cron: str, rules: Mapping[str, Any]) -> None:
        """Adds a schedule; raises InvalidArgumentError at its declaration if it is invalid."""
        spec = _spec(template, cron, rules)
        known = self._declared.get(spec.name)
        if known is not None and (known[0] is function or not is_redefinition(known[0], function)):
            raise InvalidArgumentError(
                f"two schedules of this app are called {spec.name!r}; give one of them another name with name=",
                reason="SCHEDULE_NAME_TAKEN",
            )
        self._declared[spec.name] = function, spec, (rules.get("args", ()), rules.get("kwargs", {}))

    def specs(
        self, found: "Callable[[Callable[..., Any]], tuple[Template, Callable[[], Codec]]]"
    ) -> Iterator[ScheduleSpec]:
        """Yields the schedules to set; `found` returns the template and the codec of a function."""
        from msgspec.structs import replace

        for function, spec, (args, kwargs) in self._declared.values():
            template, codec = found(function)
            yield replace(spec, template=template, payload=codec().encode(args, kwargs))


def _spec(template: "Template", cron: str, rules: Mapping[str, Any]) -> ScheduleSpec:
    from holdfast.core.schedule_checks import check_spec

    unknown = sorted(rules.keys() - ScheduleRules.__annotations__.keys())
    if unknown:
        known = ", ".join(ScheduleRules.__annotations__)
        raise InvalidArgumentError(f"unknown schedule option {', '.join(unknown)}; the options are: {known}")
    zone = rules.get("tz", "UTC")
    window_s = rules.get("catch_up_window_s", limits.CATCH_UP_WINDOW_MS / _SECOND_MS)
    spec = ScheduleSpec(
        rules.get("name", "") or template.type,
        template,
        cron=cron,
        every_ms=_span_ms("every", rules["every"]) if rules.get("every") is not None else 0,
        at_ms=_instant_ms(rules["at"], zone) if rules.get("at") is not None else 0,
        timezone=zone,
        catch_up=rules.get("catch_up", "none"),
        catch_up_window_ms=_span_ms("catch_up_window_s", window_s),
        overlap=rules.get("overlap", "allow"),
        jitter_ms=_span_ms("jitter_s", rules.get("jitter_s", 0)),
        labels=tuple(sorted(rules.get("labels", {}).items())),
    )
    refusal = check_spec(spec, int(datetime.now(UTC).timestamp() * _SECOND_MS))
    if refusal is not None:
        raise refusal.error()
    return spec


def _span_ms(name: str, span: timedelta | float) -> int:
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < limits.DELAY_MS_MAX:
        raise InvalidArgumentError(
            f"{name} must be a timedelta or a number of seconds, not negative, got {span!r}; for example"
            f" {name}=timedelta(minutes=5) or {name}=300"
        )
    return round(seconds * _SECOND_MS)


def _instant_ms(at: datetime, zone: str) -> int:
    """The time in milliseconds; a time without a zone is in the schedule's zone."""
    from holdfast.core import cron

    if not isinstance(at, datetime):
        raise InvalidArgumentError(
            f"the time must be a datetime, got {at!r}; for example datetime(2030, 12, 31, 9, 0)",
            reason="AT_INVALID",
        )
    if at.tzinfo is None:
        try:
            at = at.replace(tzinfo=cron.zone(zone))
        except ValueError as error:
            raise InvalidArgumentError(f"tz must be {error}, got {zone!r}", reason="TIMEZONE_INVALID") from None
    return ceil(at.timestamp()) * _SECOND_MS  # ticks are whole seconds, and no tick fires early


class _SchedulingApp(Protocol):
    """The part of an app that these methods need."""

    _connection: "AppConnection"

    def _portal(self) -> "Portal": ...

    def _codec_of(self, type_name: str) -> Any: ...  # noqa: ANN401 - a function that makes a codec, or None

    def declared_schedules(self) -> list[ScheduleSpec]: ...


class SchedulingMethods:
    """The methods of an app for schedules; each has an async version with an `a` in front."""

    async def _set_schedules(self: _SchedulingApp) -> list[ScheduleView]:
        """Sets the schedules of `@app.schedule`, as every worker of the app does when it starts; safe to repeat."""
        specs = self.declared_schedules()
        # B023: `spec` is bound in the loop, but the call is over before it is bound anew.
        return [await self._connection.call(lambda ports: ports.schedules.set(spec)) for spec in specs]  # noqa: B023

    async def _schedules(self: _SchedulingApp) -> list[ScheduleView]:
        """Returns all schedules by name, whether this app declares them or not."""
        return await self._connection.call(lambda ports: ports.schedules.all())

    async def _schedule_view(self: _SchedulingApp, name: str) -> ScheduleView:
        """Returns one schedule; NotFoundError if there is none of this name."""
        return await self._connection.call(lambda ports: ports.schedules.get(name))

    async def _schedule_pause(self: _SchedulingApp, name: str) -> ScheduleView:
        """Pauses a schedule: it makes no jobs until it is resumed, and the ticks of the pause never fire."""
        return await self._connection.call(lambda ports: ports.schedules.pause(name, is_paused=True))

    async def _schedule_resume(self: _SchedulingApp, name: str) -> ScheduleView:
        """Resumes a schedule with its next tick."""
        return await self._connection.call(lambda ports: ports.schedules.pause(name, is_paused=False))

    async def _schedule_trigger(self: _SchedulingApp, name: str) -> Job[Any]:
        """Makes a job of the schedule now, independent of its ticks, and returns the handle."""
        view = await self._connection.call(lambda ports: ports.schedules.get(name))
        job_id = await self._connection.call(lambda ports: ports.schedules.trigger(name), is_repeatable=False)
        return Job(self._connection, job_id, self._codec_of(view.spec.template.type))

    async def _schedule_delete(self: _SchedulingApp, name: str) -> None:
        """Deletes a schedule; its jobs stay. If the app still declares it, the next worker sets it again."""
        await self._connection.call(lambda ports: ports.schedules.delete(name), is_repeatable=False)

    async def _schedule_preview(
        self: _SchedulingApp, name: str, count: int = 10, after: datetime | None = None
    ) -> list[datetime]:
        """Returns the next ticks after `after` (by default after now), in the schedule's zone."""
        from holdfast.core import cron

        spec = (await self._connection.call(lambda ports: ports.schedules.get(name))).spec
        after_ms = _instant_ms(after, spec.timezone) if after is not None else 0
        ticks = await self._connection.call(lambda ports: ports.schedules.preview(spec, after_ms, count))
        return [datetime.fromtimestamp(tick / _SECOND_MS, cron.zone(spec.timezone)) for tick in ticks]

    set_schedules, aset_schedules = sync_method(_set_schedules), async_method(_set_schedules)
    schedules, aschedules = sync_method(_schedules), async_method(_schedules)
    schedule_view, aschedule_view = sync_method(_schedule_view), async_method(_schedule_view)
    schedule_pause, aschedule_pause = sync_method(_schedule_pause), async_method(_schedule_pause)
    schedule_resume, aschedule_resume = sync_method(_schedule_resume), async_method(_schedule_resume)
    schedule_trigger, aschedule_trigger = sync_method(_schedule_trigger), async_method(_schedule_trigger)
    schedule_delete, aschedule_delete = sync_method(_schedule_delete), async_method(_schedule_delete)
    schedule_preview, aschedule_preview = sync_method(_schedule_preview), async_method(_schedule_preview)
