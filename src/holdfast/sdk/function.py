"""Job functions, whose calls can be submitted as jobs."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import update_wrapper
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar, Unpack

from holdfast import limits
from holdfast.errors import InvalidArgumentError
from holdfast.sdk.codec import Codec
from holdfast.sdk.job import Job
from holdfast.sdk.options import CheckedOptions, JobOptions, OptionChanges, changed, suggestion
from holdfast.sdk.submission import SubmissionItem, Submitter

if TYPE_CHECKING:
    from holdfast.worker.handlers import Handler

P = ParamSpec("P")
C = TypeVar("C")
R = TypeVar("R")

_NONE: Mapping[str, Any] = MappingProxyType({})
#: Names of our methods in other job queues.
_ELSEWHERE = {
    "apply_async": "submit, after with_options for options",
    "defer": "submit",
    "delay": "submit",
    "enqueue": "submit",
    "kiq": "submit",
    "send": "submit",
    "send_with_options": "submit, after with_options for options",
}


class FunctionInfo:
    """The data that all variants of one job function share."""

    __slots__ = ("_codec", "aliases", "function", "isolation", "name", "no_retry")

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        no_retry: tuple[type[BaseException], ...],
        isolation: str,
        aliases: tuple[str, ...] = (),
    ) -> None:
        if isolation not in ("thread", "process"):
            raise InvalidArgumentError(
                f"isolation must be 'thread' or 'process', got {isolation!r}", reason="OPTION_INVALID"
            )
        if isolation == "process" and inspect.iscoroutinefunction(function):
            raise InvalidArgumentError(
                f"isolation='process' needs an ordinary function, got the coroutine function {name}; use def instead of"
                " async def, or remove isolation",
                reason="OPTION_INVALID",
            )
        self.function = function
        self.name = name
        #: Other types whose jobs it runs: its former names.
        self.aliases = aliases
        self.no_retry = no_retry
        self.isolation = isolation
        self._codec: Codec | None = None

    def codec(self) -> Codec:
        """Returns the codec, made at the first use: annotations may name types that the module defines later."""
        if self._codec is None:
            self._codec = Codec(self.function)
        return self._codec

    def handler(self) -> "Handler":
        """Returns the handler by which a worker runs the function."""
        from holdfast.sdk.function_handler import handler_of

        return handler_of(self.function, self.codec, self.no_retry, self.isolation)


class JobFunction(Generic[P, C, R]):
    """A job function: still an ordinary callable, and `submit` runs a call as a job."""

    def __init__(self, submitter: Submitter, info: FunctionInfo, options: JobOptions) -> None:
        self._submitter = submitter
        self._info = info
        self._plan = CheckedOptions(info.name, options)
        update_wrapper(self, info.function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        """Calls the function directly; no job is made."""
        result: C = self._info.function(*args, **kwargs)
        return result

    def __repr__(self) -> str:
        return f"<JobFunction {self._info.name}>"

    if not TYPE_CHECKING:  # a type checker would accept every attribute

        def __getattr__(self, name: str) -> NoReturn:
            """Raises AttributeError, and suggests our method for the name that another job queue uses."""
            hint = suggestion(name, (), _ELSEWHERE)  # Python itself suggests a similar name
            raise AttributeError(f"a job function has no attribute {name!r}{hint}", name=name, obj=self)

    def __reduce__(self) -> str:
        """Pickles the function by its name, like any function."""
        return str(getattr(self, "__qualname__", self._info.name))

    def __get__(self, instance: object, owner: type | None = None) -> "JobFunction[P, C, R]":
        return self

    @property
    def name(self) -> str:
        """The type of its jobs."""
        return self._info.name

    @property
    def info(self) -> FunctionInfo:
        """The data that all its variants share; for the app that declared it."""
        return self._info

    @property
    def plan(self) -> CheckedOptions:
        """The checked options of its jobs."""
        return self._plan

    @property
    def options(self) -> JobOptions:
        """The options of its jobs."""
        return self._plan.options

    def with_options(self, **changes: Unpack[OptionChanges]) -> "JobFunction[P, C, R]":
        """Returns the same function with some options changed."""
        return JobFunction(self._submitter, self._info, changed(self._plan.options, changes))

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Submits the call as a job; the job is durable when this returns."""
        return self._submitter.one(self._item(args, kwargs))

    async def asubmit(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Async version of `submit`."""
        return await self._submitter.aone(self._item(args, kwargs))

    def submit_many(self, calls: Iterable[Sequence[Any] | Mapping[str, Any]]) -> list[Job[R]]:
        """Submits a job for each call: a tuple of positional arguments, or a dict of named ones.

        Raises SubmitManyError if some are not accepted; the error has the handles of the others.
        """
        item_of = self._item_maker()
        return self._submitter.many([item_of(call) for call in calls])

    async def asubmit_many(self, calls: Iterable[Sequence[Any] | Mapping[str, Any]]) -> list[Job[R]]:
        """Async version of `submit_many`."""
        import asyncio

        items, item_of = [], self._item_maker()
        for call in calls:
            items.append(item_of(call))
            if len(items) % limits.BATCH_JOBS_MAX == 0:
                await asyncio.sleep(0)  # lets other tasks on the caller's loop run
        return await self._submitter.amany(items)

    def _item_maker(self) -> Callable[[Sequence[Any] | Mapping[str, Any]], SubmissionItem]:
        plan, codec = self._plan, self._info.codec
        encode = codec().encode

        def item_of(call: Sequence[Any] | Mapping[str, Any]) -> SubmissionItem:
            if type(call) is tuple:  # the most common case first: instance checks of abstract types are slow
                return SubmissionItem(plan, encode(call, _NONE), codec)
            if isinstance(call, Mapping):
                return SubmissionItem(plan, encode((), call), codec)
            if isinstance(call, str | bytes) or not isinstance(call, Sequence):
                raise InvalidArgumentError(
                    f"each call must be a tuple or a dict of arguments, got {type(call).__name__};"
                    " write a single argument as (value,)",
                    reason="ARGUMENTS_INVALID",
                )
            return SubmissionItem(plan, encode(call, _NONE), codec)

        return item_of

    def _item(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> SubmissionItem:
        return SubmissionItem(self._plan, self._info.codec().encode(args, kwargs), self._info.codec)
