"""Warnings at the start of a worker, about jobs and schedules that no worker would run.

The backend's capabilities limit the warnings: without administration the waiting types are unknown, without schedules
the schedules are. No read may stop or delay the worker: a read that fails or takes long is skipped.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from holdfast.core.unknown_types import unknown_types, unknown_types_text
from holdfast.errors import HoldfastError
from holdfast.observe.logs import get_logger
from holdfast.ports import QueueView, ScheduleSpec, ScheduleView, WorkerView
from holdfast.worker.app_loader import App, schedules_of
from holdfast.worker.builtin import BUILTIN

T = TypeVar("T")

_READ_S = 2.0
_SHOWN_MAX = 8
_REMEDY = "start a worker whose app defines them; a renamed function keeps its old name with @app.job(aliases=[...])"


class BackendReads(NamedTuple):
    """The calls that read the queues, the connected workers and the schedules."""

    queues: Callable[[], Awaitable[list[QueueView]]]
    workers: Callable[[], Awaitable[list[WorkerView]]]
    schedules: Callable[[], Awaitable[list[ScheduleView]]]


class AppDeclarations(NamedTuple):
    """The declarations of a worker's app: the types it runs, aliases of renamed functions, and schedules."""

    app: str
    types: Collection[str]
    aliases: Mapping[str, str]
    schedules: Sequence[ScheduleSpec]


class StartWarning(NamedTuple):
    """A warning: a stable event name, a sentence, and fields for programs."""

    event: str
    message: str
    fields: Mapping[str, Any]


def declared_by(app: App | None, path: str, types: Collection[str]) -> AppDeclarations:
    """Returns the declarations of an app. `path` is the app's name in messages; empty for a worker without an app."""
    return AppDeclarations(path, types, getattr(app, "aliases", {}), schedules_of(app))


async def report_start(declared: AppDeclarations, reads: BackendReads | None) -> None:
    """Logs a warning for everything that no worker will run; called once the worker is attached.

    Without `reads`, for a backend without administration, only the app itself is checked.
    """
    waiting = [] if reads is None else await _waiting_for_ever(declared, reads)
    for one in [*_without_functions(declared), *waiting]:
        get_logger().warning(one.event, message=one.message, **one.fields)


async def _waiting_for_ever(declared: AppDeclarations, reads: BackendReads) -> list[StartWarning]:
    workers = await _read(reads.workers)
    if workers is None:  # the other reads would be refused, too
        return []
    known = {*declared.types, *(name for worker in workers for name in worker.types)}
    queues, schedules = await _read(reads.queues) or [], await _read(reads.schedules) or []
    return [
        *_unknown_jobs(known, queues),
        *_unknown_schedules(known, schedules),
        *_repeated_schedules(declared, schedules),
    ]


async def _read(read: Callable[[], Awaitable[list[T]]]) -> list[T] | None:
    try:
        async with asyncio.timeout(_READ_S):
            return await read()
    except (HoldfastError, TimeoutError):
        return None


def _without_functions(declared: AppDeclarations) -> Iterator[StartWarning]:
    if declared.app and not set(declared.types) - BUILTIN.keys():
        message = (
            f"{declared.app} has no job functions, so this worker runs only the built-in types; decorate functions"
            ' with @app.job, and name the modules that contain them with app.include("module")'
        )
        yield StartWarning("no_job_functions", message, {"app": declared.app})


def _unknown_jobs(known: Collection[str], queues: Sequence[QueueView]) -> Iterator[StartWarning]:
    types = unknown_types(queues, known)
    if types:
        yield StartWarning("unknown_types", f"{unknown_types_text(types)}; {_REMEDY}", {"types": types})


def _unknown_schedules(known: Collection[str], schedules: Sequence[ScheduleView]) -> Iterator[StartWarning]:
    firing = [view.spec for view in schedules if view.next_ms and not view.is_paused]
    types = {spec.name: spec.template.type for spec in firing if spec.template.route not in known}
    if types:
        shown = ", ".join(f"{name} (type {kind})" for name, kind in [*types.items()][:_SHOWN_MAX])
        more = f" and {len(types) - _SHOWN_MAX} more" if len(types) > _SHOWN_MAX else ""
        message = (
            f"schedules create jobs of types that no connected worker knows: {shown}{more}; {_REMEDY};"
            " `holdfast schedule delete NAME` deletes a schedule"
        )
        yield StartWarning("unknown_schedules", message, {"schedules": types})


def _repeated_schedules(declared: AppDeclarations, schedules: Sequence[ScheduleView]) -> Iterator[StartWarning]:
    """Warns of the old schedule of a renamed function: it still exists beside the new one, and both fire."""
    names = {spec.name for spec in declared.schedules}
    types = {spec.template.type for spec in declared.schedules}
    for view in schedules:
        name, kind = view.spec.name, view.spec.template.type
        if declared.aliases.get(kind) in types and name not in names and view.next_ms and not view.is_paused:
            message = (
                f"the schedule {name} still creates jobs of type {kind}, the old name of {declared.aliases[kind]},"
                f" which has its own schedule: both fire; `holdfast schedule delete {name}` deletes the old one"
            )
            yield StartWarning("repeated_schedule", message, {"schedule": name})
