"""`holdfast worker`: a worker process, for a server or for the place of its app."""

import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.text import say
from holdfast.errors import HoldfastError, InvalidArgumentError, PermissionDeniedError
from holdfast.sdk.url_schemes import is_direct
from holdfast.settings import (
    DEFAULT_CONNECT,
    Fields,
    Queues,
    WorkerSettings,
    addresses_of,
    fields_of,
    purpose,
)
from holdfast.settings_sources import LoadedSettings, load

if TYPE_CHECKING:
    from holdfast.cli.work_source import WorkSource
    from holdfast.ports import ScheduleSpec
    from holdfast.worker.app_loader import App
    from holdfast.worker.config import WorkerConfig
    from holdfast.worker.handlers import Handler
    from holdfast.worker.runtime import Worker

_FIELDS: Fields = fields_of(WorkerSettings)
_MIB = 1 << 20
#: Defaults that depend on another setting.
_DEFAULTS = {"connect": f"the location of the app's jobs, else {DEFAULT_CONNECT}"}


def _option(name: str, metavar: str, *more: str) -> typer.models.OptionInfo:
    default = _DEFAULTS.get(name, _FIELDS[name].default)
    text = purpose(name, _FIELDS) + (f" (default: {default})" if default not in {"", 0} else "")
    option: typer.models.OptionInfo = typer.Option(
        f"--{name.replace('_', '-')}", *more, metavar=metavar, help=text, show_default=False
    )
    return option


def worker(
    app: Annotated[str | None, _option("app", "MODULE:APP", "-A")] = None,
    connect: Annotated[str | None, _option("connect", "HOST:PORT|DIRECTORY")] = None,
    queues: Annotated[str | None, _option("queues", "A,B", "-Q")] = None,
    slots: Annotated[str | None, _option("slots", "N", "-c")] = None,
    isolation: Annotated[str | None, _option("isolation", "thread|process")] = None,
    max_jobs: Annotated[str | None, _option("max_jobs", "N")] = None,
    max_memory_mb: Annotated[str | None, _option("max_memory_mb", "MIB")] = None,
    child_memory_mb: Annotated[str | None, _option("child_memory_mb", "MIB")] = None,
    worker_id: Annotated[str | None, _option("worker_id", "NAME")] = None,
    drain_ms: Annotated[str | None, _option("drain_ms", "MS")] = None,
    kill_grace_ms: Annotated[str | None, _option("kill_grace_ms", "MS")] = None,
    log_level: Annotated[str | None, _option("log_level", "LEVEL")] = None,
    log_format: Annotated[str | None, _option("log_format", "FORMAT")] = None,
    has_lifeline: Annotated[bool, typer.Option("--lifeline", hidden=True)] = False,
    is_with_server: Annotated[bool, typer.Option("--with-server", hidden=True)] = False,
    beside: Annotated[str, typer.Option("--beside", hidden=True)] = "",
) -> None:
    """Runs jobs until TERM or INT. For a child of `holdfast up`, `beside` is the data directory of its server."""
    flags = {name: value for name, value in locals().items() if name in _FIELDS}
    loaded = load(WorkerSettings, flags=flags, environment=os.environ, folder=Path.cwd())
    ended = _work(loaded, beside, has_lifeline=has_lifeline, is_with_server=is_with_server)
    if ended.is_recycling:
        # Restarts in the same process, so that its supervisor sees no exit. Stop signals are blocked.
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - this very program
    end_process_of(ended)


def _work(loaded: LoadedSettings[WorkerSettings], beside: str, *, has_lifeline: bool, is_with_server: bool) -> "Worker":
    """Runs the worker; returns it when it has ended."""
    from holdfast.observe import log_setup
    from holdfast.observe.log_stream import BackgroundStream
    from holdfast.observe.tracing_export import exporting
    from holdfast.process.lifeline import lifeline
    from holdfast.topologies.worker_process import run_worker

    if has_lifeline:
        lifeline()
    settings = loaded.settings
    found, handlers = load_handlers(settings.app)
    from holdfast.cli.work_source import source_of

    source = source_of(loaded, found, may_serve=not has_lifeline)
    _warn_of_another_place(settings.app, str(getattr(found, "url", "")), beside or source.where)
    stream = BackgroundStream(sys.stderr.fileno())
    log_setup.configure(service="worker", level=settings.log_level, log_format=settings.log_format, stream=stream)
    try:
        with exporting(os.environ, "holdfast-worker"):
            config = _config(settings, found, dies_with_server=is_with_server)
            prepare = _preparing(loaded, found, handlers, source)
            return run_to_the_end(run_worker(source.api, handlers, config, source.where, prepare))
    finally:
        source.close()
        if found is not None and hasattr(found, "close"):
            found.close()
        stream.close()


def run_to_the_end(work: "Coroutine[Any, Any, Worker]") -> "Worker":
    """Runs the event loop, and closes it unless a coroutine prevents that."""
    import uvloop

    loop = uvloop.new_event_loop()
    ended = loop.run_until_complete(work)
    if not ended.has_left_behind:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
    return ended


def end_process_of(ended: "Worker") -> None:
    """Ends this process at once if the worker left a coroutine behind that cannot be canceled.

    Such a coroutine would keep the process running for ever.
    """
    if ended.has_left_behind:
        sys.stdout.flush()
        os._exit(0)


def queue_names(queues: str) -> frozenset[str]:
    """Returns the queues that the option `--queues` names; none means all."""
    import msgspec

    try:
        return frozenset(name for name in msgspec.convert(queues, Queues).split(",") if name)
    except (msgspec.ValidationError, UnicodeEncodeError):
        message = f"--queues must be comma-separated queue names, got {queues!r}"
        raise InvalidArgumentError(message, reason="QUEUE_NAME_INVALID") from None


def load_handlers(app_path: str) -> "tuple[App | None, Mapping[str, Handler]]":
    """Returns the app, if one is named, and the handlers of its worker."""
    from holdfast.worker.app_loader import load_app
    from holdfast.worker.builtin import BUILTIN

    if not app_path:
        return None, BUILTIN
    app = load_app(app_path)
    return app, {**BUILTIN, **app.handlers()}


def _preparing(
    loaded: LoadedSettings[WorkerSettings], app: "App | None", handlers: "Mapping[str, Handler]", source: "WorkSource"
) -> Callable[[], Awaitable[None]]:
    """Returns the function that an attached worker calls: it sets the app's schedules and logs the start report."""
    from holdfast.cli.work_source import reads_of
    from holdfast.worker.start_report import declared_by, report_start

    set_schedules = _scheduling(loaded, app)
    declared = declared_by(app, loaded.settings.app, handlers.keys())

    async def prepare() -> None:
        if set_schedules is not None:
            await set_schedules()
        with suppress(HoldfastError):  # the worker runs jobs without the report, too
            async with reads_of(source, loaded.settings) as reads:
                await report_start(declared, reads)

    return prepare


def _scheduling(loaded: LoadedSettings[WorkerSettings], app: "App | None") -> Callable[[], Awaitable[object]] | None:
    """Returns a function that sets the schedules of the app at the source of its jobs; None if it has none."""
    from holdfast.worker.app_loader import PlannedApp, schedules_of

    specs = schedules_of(app)
    if not specs:
        return None

    async def set_all() -> None:
        try:
            if isinstance(app, PlannedApp) and loaded.origins["connect"] == "default":
                await app.aset_schedules()
            else:
                await _set_at(loaded.settings, specs)
        except PermissionDeniedError as error:  # the worker can still run jobs
            say(f"holdfast: {len(specs)} schedules of {loaded.settings.app} were not set: {error.message}")

    return set_all


async def _set_at(settings: WorkerSettings, specs: "Sequence[ScheduleSpec]") -> None:
    from holdfast.cli.work_source import client_at

    async with await client_at(settings) as client:
        for spec in specs:
            await client.schedules.set(spec)


def _warn_of_another_place(app: str, url: str, where: str) -> None:
    """Warns if the app submits to another directory than this worker serves, because those jobs would never run."""
    from holdfast.cli.work_source import is_same_directory

    are_elsewhere = any(is_direct(place) or addresses_of(place) for place in (url, where))
    if not url or are_elsewhere or is_same_directory(url, where):
        return
    say(f"holdfast: {app} submits to {url!r}, but this worker runs the jobs of {where!r}; use the same place for both")


def _config(settings: WorkerSettings, app: "App | None", *, dies_with_server: bool) -> "WorkerConfig":
    from holdfast.worker.app_loader import schedules_of
    from holdfast.worker.config import WorkerConfig, half_of_memory
    from holdfast.worker.handlers import Mode
    from holdfast.worker.worker_name import process_name

    return WorkerConfig(
        worker_id=settings.worker_id or process_name(),
        slots=settings.slots,
        dies_with_server=dies_with_server,
        queues=settings.queue_names,
        schedules=tuple(spec.name for spec in schedules_of(app)),
        drain_ms=settings.drain_ms,
        app_path=settings.app,
        isolation=Mode(settings.isolation) if settings.isolation else None,
        is_replaceable=True,
        max_jobs=settings.max_jobs,
        max_memory_bytes=settings.max_memory_mb * _MIB,
        child_memory_bytes=settings.child_memory_mb * _MIB or half_of_memory(),
        kill_grace_ms=settings.kill_grace_ms,
    )
