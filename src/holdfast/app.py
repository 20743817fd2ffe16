"""`Holdfast`: the app, which makes job functions, job handles and workers."""

import atexit
import os
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, overload

from holdfast import limits
from holdfast.core.lifecycle import State
from holdfast.core.model import QueueMode, Template
from holdfast.errors import InvalidArgumentError
from holdfast.ports import JobQuery, QueueView, ScheduleSpec, Stats, WorkerView
from holdfast.sdk.codec import Codec, encode
from holdfast.sdk.connection import AppConnection
from holdfast.sdk.declaration import Declaration, Decorator, alias_names, exceptions, is_redefinition, type_name
from holdfast.sdk.function import FunctionInfo, JobFunction
from holdfast.sdk.job import Job
from holdfast.sdk.options import CheckedOptions, JobOptions, OptionChanges, changed
from holdfast.sdk.schedules import DeclaredSchedules, ScheduleDecorator, ScheduleRules, SchedulingMethods
from holdfast.sdk.submission import SubmissionItem, Submitter
from holdfast.sdk.sync_async import async_iterator, async_method, sync_iterator, sync_method
from holdfast.sdk.url_schemes import default_url, opener, without_secrets

if TYPE_CHECKING:
    from holdfast.core.capabilities import Capabilities
    from holdfast.ledger.ports import Clock
    from holdfast.ports import WorkApi
    from holdfast.sdk.portal import Portal
    from holdfast.sdk.worker import AppWorker
    from holdfast.worker.handlers import Handler

P = ParamSpec("P")
R = TypeVar("R")
States = State | str | Collection[State | str]

#: The open connections of this process: closed at interpreter exit, disowned in a forked child. They belong to the
#: process and not to an app, because both hooks belong to the process.
_OPEN: "weakref.WeakSet[AppConnection]" = weakref.WeakSet()


class Holdfast(SchedulingMethods):
    """An app: jobs in a directory, in memory or on a server. Nothing is opened before the first use.

    Every method `name` that calls the backend has an async version `aname` for any event loop. The sync methods block
    the thread that calls them, and with it an event loop that runs there.
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | None = None,
        *,
        token: str = "",
        settings: Mapping[str, object] | None = None,
        clock: "Clock | None" = None,
    ) -> None:
        """Without a `url`, the app uses HOLDFAST_CONNECT, and without that the directory `./holdfast-data`.

        `token` is for a server that requires one (default: the token in the URL, else HOLDFAST_TOKEN or
        HOLDFAST_TOKEN_FILE). `settings` are server settings, for a directory or memory; `clock` is for tests.
        """
        given = default_url() if url is None else os.fspath(url)
        #: The URL without secrets.
        self.url = without_secrets(given)
        self._connection = AppConnection(opener(given, dict(settings or {}), clock, token))
        self._submitter = Submitter(self._connection)
        #: Functions by every type that they run: their names and aliases.
        self._functions: dict[str, FunctionInfo] = {}
        self._included: list[str] = []
        self._declared: dict[Callable[..., Any], JobFunction[Any, Any, Any]] = {}
        self._calendar = DeclaredSchedules()
        _OPEN.add(self._connection)

    def __repr__(self) -> str:
        return f"<Holdfast {self.url}>"

    @property
    def connection(self) -> AppConnection:
        """The connection of the app; for `holdfast.testing`."""
        return self._connection

    # -- job functions

    @overload
    def job(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> JobFunction[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def job(self, function: Callable[P, R], /) -> JobFunction[P, R, R]: ...
    @overload
    def job(self, **declaration: Unpack[Declaration]) -> Decorator: ...
    def job(self, *functions: Callable[..., Any], **declaration: Any) -> Decorator | JobFunction[Any, Any, Any]:
        """Makes a job function, whose calls can be submitted as jobs; it can still be called as before.

        `@app.job` or `@app.job(queue=..., priority=..., max_attempts=..., max_losses=..., timeout_s=..., backoff=...,
        no_retry=(ValueError,), isolation="thread" or "process", name=..., aliases=[...])`.

        The function also runs jobs of the types in `aliases`: its former names, which jobs and schedules may still
        have.
        """
        declared = dict(declaration)
        aliases = alias_names(declared.pop("aliases", ()))
        name, isolation = str(declared.pop("name", "") or ""), str(declared.pop("isolation", "thread"))
        no_retry = exceptions(declared.pop("no_retry", ()))
        options = changed(JobOptions(), declared)

        def decorate(function: Callable[..., Any]) -> JobFunction[Any, Any, Any]:
            if not callable(function):
                raise InvalidArgumentError(
                    f"@app.job must decorate a function, got {function!r}; pass options by name",
                    reason="ARGUMENTS_INVALID",
                )
            if isinstance(function, JobFunction):  # made by `schedule` below this decorator, without its options
                self._forget(function.info)
                function = function.info.function
            info = FunctionInfo(function, name or type_name(function), no_retry, isolation, aliases)
            return self._declare(info, options)

        return decorate(*functions) if functions else Decorator(decorate)

    def schedule(self, cron: str = "", /, **rules: Unpack[ScheduleRules]) -> ScheduleDecorator:
        """Runs a job function by time: `@app.schedule("*/5 * * * *", tz="Europe/Paris")`, above or below `@app.job`.

        Instead of cron, use `every=timedelta(minutes=5)` or `at=datetime(...)`. `args=` and `kwargs=` are the arguments
        of each call, `name=` is the schedule's name (default: the function's). Other options:
        `catch_up="none"|"latest"|"all"`, `catch_up_window_s`, `overlap="allow"|"skip"|"cancel_running"`, `jitter_s`,
        `labels`. A worker of the app sets the schedule when it starts. Removing the decorator does not delete the
        schedule; use `app.schedule_delete(name)`.
        """

        def decorate(function: Callable[..., Any]) -> JobFunction[Any, Any, Any]:
            made = function if isinstance(function, JobFunction) else self.job(function)
            self._calendar.add(made.info.function, made.plan.template, cron, rules)
            return made

        return ScheduleDecorator(decorate)

    def include(self, *modules: str) -> None:
        """Names the modules that define more jobs of this app: `app.include("shop.emails", "shop.images")`.

        A worker imports them when it starts, and so does every other reader of the app's functions. Nothing is imported
        here, so that these modules can import the app.
        """
        for name in modules:
            if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
                message = f"app.include() takes full names of modules such as 'shop.emails', got {name!r}"
                raise InvalidArgumentError(message, reason="MODULE_INVALID")
        self._included.extend(modules)

    def _import_included(self) -> None:
        from holdfast.worker.app_loader import import_included

        for name in self._included:
            import_included(name)

    @property
    def aliases(self) -> dict[str, str]:
        """The former names of functions, each with the function's current name."""
        return {alias: name for alias, info in self._functions.items() if (name := info.name) != alias}

    def declared_schedules(self) -> list[ScheduleSpec]:
        """Returns the schedules of `@app.schedule`, as workers of this app set them."""
        self._import_included()
        return list(self._calendar.specs(self._kept))

    def _kept(self, function: Callable[..., Any]) -> tuple[Template, Callable[[], Codec]]:
        declared = self._declared[function]
        return declared.plan.template, declared.info.codec

    def _declare(self, info: FunctionInfo, options: JobOptions) -> JobFunction[Any, Any, Any]:
        types = (info.name, *info.aliases)
        taken = [self._functions[name] for name in types if name in self._functions]
        for known in taken:
            if not is_redefinition(known.function, info.function):
                raise _two_functions(known, info)
        declared: JobFunction[Any, Any, Any] = JobFunction(self._submitter, info, options)
        for known in taken:
            self._forget(known)
        self._functions.update(dict.fromkeys(types, info))
        self._declared[info.function] = declared
        return declared

    def _forget(self, info: FunctionInfo) -> None:
        self._functions = {name: known for name, known in self._functions.items() if known is not info}

    def handlers(self) -> "dict[str, Handler]":
        """Returns the handlers for a worker of this app, by type, including the built-in types."""
        from holdfast.worker.builtin import BUILTIN

        self._import_included()
        return {**BUILTIN, **{name: info.handler() for name, info in self._functions.items()}}

    # -- jobs by name and by id

    def submit(self, type_name: str, arguments: object = None, **options: Unpack[OptionChanges]) -> Job[Any]:
        """Submits a job of this type; `arguments` is a dict by name, a list by position, or bytes as they are."""
        return self._submitter.one(_item(type_name, arguments, options))

    async def asubmit(self, type_name: str, arguments: object = None, **options: Unpack[OptionChanges]) -> Job[Any]:
        """Async version of `submit`."""
        return await self._submitter.aone(_item(type_name, arguments, options))

    def job_handle(self, job_id: str) -> Job[Any]:
        """Returns a handle of a job, without checking that the job exists."""
        if not isinstance(job_id, str) or not job_id:
            raise InvalidArgumentError(
                f"the job id must be a non-empty string, got {job_id!r}; pass the `id` of a Job",
                reason="JOB_ID_INVALID",
            )
        return Job(self._connection, job_id)

    async def _get(self, job_id: str) -> Job[Any]:
        """Returns a handle of an existing job, whose `seen` is the job as it is now; NotFoundError if there is none."""
        self.job_handle(job_id)
        view = await self._connection.call(lambda ports: ports.jobs.get(job_id))
        return Job(self._connection, job_id, self._codec_of(view.template.type), seen=view)

    def _codec_of(self, type_name: str) -> Any:  # noqa: ANN401 - a function that makes a codec, or None
        info = self._functions.get(type_name)
        return info.codec if info is not None else None

    async def _find(
        self,
        *,
        state: States = (),
        queue: str = "",
        type: str = "",  # noqa: A002 - the glossary's word
        labels: Mapping[str, str] | None = None,
        oldest_first: bool = False,
    ) -> AsyncIterator[Job[Any]]:
        """Yields the jobs that match all given conditions, newest first; `seen` of each is the job as it was found."""
        query = JobQuery(_states(state), queue, type, dict(labels or {}), oldest_first=oldest_first)
        cursor, is_more = "", True
        while is_more:
            at = cursor
            # B023: `at` is bound in the loop, but the call is over before it is bound anew.
            found = await self._connection.call(lambda ports: ports.jobs.find(query, at, limits.PAGE_SIZE_MAX))  # noqa: B023
            for view in found.jobs:
                yield Job(self._connection, view.id, self._codec_of(view.template.type), seen=view)
            cursor, is_more = found.cursor, bool(found.cursor)

    get, aget = sync_method(_get), async_method(_get)
    find, afind = sync_iterator(_find), async_iterator(_find)

    # -- administration

    async def _capabilities(self) -> "Capabilities":
        """Returns the capabilities of the backend, with a sentence for each one that it lacks."""
        return await self._connection.call(lambda ports: ports.backend.capabilities())

    async def _stats(self) -> Stats:
        """Returns the numbers of jobs by state, of workers, slots and leases, and more."""
        return await self._connection.call(lambda ports: ports.admin.stats())

    async def _queues(self) -> list[QueueView]:
        """Returns every queue that has jobs or is not open."""
        return await self._connection.call(lambda ports: ports.admin.queues())

    async def _pause(self, queue: str, reason: str = "") -> None:
        """Pauses a queue: it accepts jobs and grants none, until it is resumed."""
        await self._set_mode(queue, QueueMode.PAUSED, reason)

    async def _resume(self, queue: str, reason: str = "") -> None:
        """Opens a queue that was paused or draining."""
        await self._set_mode(queue, QueueMode.OPEN, reason)

    async def _drain(self, queue: str, reason: str = "") -> None:
        """Drains a queue: it grants jobs and accepts no new ones, until it is resumed."""
        await self._set_mode(queue, QueueMode.DRAINING, reason)

    async def _set_mode(self, queue: str, mode: QueueMode, reason: str) -> None:
        await self._connection.call(lambda ports: ports.admin.set_queue_mode(queue, mode, reason))

    async def _purge(self, queue: str, reason: str = "") -> int:
        """Cancels all jobs that wait in a queue, and returns their number."""
        return await self._connection.call(lambda ports: ports.admin.purge(queue, reason), is_repeatable=False)

    async def _workers(self) -> list[WorkerView]:
        """Returns every worker that is connected or was until recently."""
        return await self._connection.call(lambda ports: ports.admin.workers())

    capabilities, acapabilities = sync_method(_capabilities), async_method(_capabilities)
    stats, astats = sync_method(_stats), async_method(_stats)
    queues, aqueues = sync_method(_queues), async_method(_queues)
    pause, apause = sync_method(_pause), async_method(_pause)
    resume, aresume = sync_method(_resume), async_method(_resume)
    drain, adrain = sync_method(_drain), async_method(_drain)
    purge, apurge = sync_method(_purge), async_method(_purge)
    workers, aworkers = sync_method(_workers), async_method(_workers)

    # -- work

    def worker(
        self,
        *,
        slots: int = 8,
        queues: Collection[str] = (),
        worker_id: str = "",
        drain_s: float = 30,
        app_path: str = "",
    ) -> "AppWorker":
        """Makes a worker in this process: `app.worker().run()`, or `with app.worker(): ...` in the background.

        `app_path` (`module:attribute`) is where processes that run jobs in isolation import this app from. By default
        it is found if the app is a variable of a module that defines job functions.
        """
        from holdfast.sdk.worker import AppWorker
        from holdfast.worker.config import WorkerConfig
        from holdfast.worker.start_report import BackendReads, declared_by, report_start
        from holdfast.worker.worker_name import fresh_name

        if not 1 <= slots <= limits.SLOTS_MAX:
            raise InvalidArgumentError(f"slots must be a number from 1 to {limits.SLOTS_MAX}, got {slots!r}")
        handlers = self.handlers()
        config = WorkerConfig(
            worker_id or fresh_name(),
            slots,
            frozenset(queues),
            drain_ms=max(0, round(drain_s * 1_000)),
            app_path=app_path or _path_of(self, [info.function.__module__ for info in self._functions.values()]),
            schedules=tuple(spec.name for spec in self.declared_schedules()),
        )
        declared = declared_by(self, repr(self), handlers.keys())
        reads = BackendReads(self.aqueues, self.aworkers, self.aschedules)
        report = partial(report_start, declared, reads)
        return AppWorker(self._connection, handlers, config, self.aset_schedules, report)

    def work_api(self) -> "WorkApi":
        """Returns the API from which a worker of this app gets its leases, on any loop."""
        from holdfast.sdk.worker import AppWork

        return AppWork(self._connection)

    # -- closing

    def close(self) -> None:
        """Closes the app; a directory that this process served is handed over at once. Harmless to repeat."""
        self._connection.close()
        _OPEN.discard(self._connection)

    async def aclose(self) -> None:
        """Async version of `close`, which does not block the caller's loop."""
        import asyncio

        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _portal(self) -> "Portal":
        return self._connection.portal()


def _two_functions(known: FunctionInfo, info: FunctionInfo) -> InvalidArgumentError:
    if known.name == info.name:
        message = f"two functions of this app are called {info.name!r}; give one of them another name with name="
    else:
        both = sorted({known.name, *known.aliases} & {info.name, *info.aliases})
        message = (
            f"the functions {known.name!r} and {info.name!r} of this app would both run jobs of the type {both[0]!r};"
            " keep this type as the name or in the aliases= of one function only"
        )
    return InvalidArgumentError(message, reason="JOB_NAME_TAKEN")


def _item(type_name: str, arguments: object, options: OptionChanges) -> SubmissionItem:
    plan = CheckedOptions(type_name, changed(JobOptions(), options))
    if arguments is None:
        return SubmissionItem(plan, b"")
    if isinstance(arguments, bytes | bytearray | memoryview):
        return SubmissionItem(plan, _checked_size(bytes(arguments)))
    if isinstance(arguments, str) or not isinstance(arguments, Mapping | Sequence):
        raise InvalidArgumentError(
            f"the arguments must be a dict, a list or bytes, got {type(arguments).__name__}; put a single argument into"
            " a list",
            reason="ARGUMENTS_INVALID",
        )
    return SubmissionItem(plan, encode(arguments))


def _checked_size(payload: bytes) -> bytes:
    if len(payload) > limits.PAYLOAD_BYTES_MAX:
        message = (
            f"the payload must be at most {limits.PAYLOAD_BYTES_MAX} bytes, got {len(payload)}; store large data"
            " elsewhere, and pass a reference to it"
        )
        raise InvalidArgumentError(message, reason="PAYLOAD_TOO_LARGE")
    return payload


def _states(given: States) -> frozenset[State]:
    some = [given] if isinstance(given, State | str) else given
    try:
        return frozenset(one if isinstance(one, State) else State[one.upper()] for one in some)
    except KeyError as error:
        known = ", ".join(state.name for state in State)
        raise InvalidArgumentError(f"a state must be one of {known}, got {error.args[0]!r}") from None


def _path_of(app: object, modules: Iterable[str]) -> str:
    """Returns `module:attribute` of the app if one of these modules has it in a variable; else an empty string.

    Child processes that run jobs of the app import it by this path.
    """
    for name in dict.fromkeys(modules):
        module = sys.modules.get(name)
        for attribute, value in vars(module).items() if module is not None else ():
            if value is app:
                importable = _importable(name)
                return f"{importable}:{attribute}" if importable else ""
    return ""


def _importable(name: str) -> str:
    """The name by which another process can import the module; for the main module, that of its spec or file."""
    if name != "__main__":
        return name
    main = sys.modules[name]
    if main.__spec__ is not None:
        return main.__spec__.name
    file = Path(getattr(main, "__file__", "") or "")
    is_found = file.suffix == ".py" and file.stem.isidentifier() and file.absolute().parent == Path.cwd()
    return file.stem if is_found else ""


def _close_all() -> None:
    for connection in list(_OPEN):
        connection.close(timeout_s=0)  # a program that wants running jobs to finish closes its app before it ends


def _disown_all() -> None:
    for connection in list(_OPEN):
        connection.disown()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_disown_all)
