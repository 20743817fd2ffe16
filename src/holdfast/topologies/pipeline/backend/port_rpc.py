"""The ports on the wire: `POST /ports/<port>.<method>`, with MessagePack in both directions.

The table is generated from the signatures of the ports, so that the two cannot differ. A refusal is sent as a problem
document, as by every role. No request waits without a limit: a wait is a sequence of polls of at most `WAIT_MS_MAX`.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Protocol, cast, get_type_hints

import msgspec

from holdfast.errors import InvalidArgumentError, UnavailableError
from holdfast.ports import AdminApi, HistoryApi, JobApi, JobView, ResultView, ScheduleApi

PREFIX = "/ports/"
#: How long one poll may wait for a change.
WAIT_MS_MAX = 10_000

Handle = Callable[[bytes], Awaitable[bytes]]


class JobChange(msgspec.Struct, frozen=True):
    """A job after a change, and the value of `seen` for the next poll."""

    seen: int
    job: JobView


class EndedJob(msgspec.Struct, frozen=True):
    """A job that has ended, and its result."""

    job: JobView
    result: ResultView


class WaitApi(Protocol):
    """The waiting methods of the ports, as polls of a limited length."""

    async def changed(self, job_id: str, seen: int, wait_ms: int) -> JobChange | None:
        """Returns the job as soon as it differs from what was `seen` (0: nothing); None after `wait_ms`."""
        ...

    async def ended(self, job_id: str, wait_ms: int) -> EndedJob | None:
        """Returns the job when it has ended; None after `wait_ms`."""
        ...


class PortMethod(msgspec.Struct, frozen=True):
    """One method of a port: its arguments, its response, its timeout, and whether it may be repeated."""

    name: str
    arguments: type[msgspec.Struct]
    answer: Any
    is_repeatable: bool
    timeout_s: float

    @property
    def path(self) -> str:
        """The path of its requests."""
        return f"{PREFIX}{self.name}"


#: The timeouts of reads and small changes, of submissions and listings, and of changes of many jobs.
_SHORT_S, _LONG_S, _WALK_S = 5.0, 10.0, 30.0


def _method(function: Callable[..., object], name: str, timeout_s: float, *, is_repeatable: bool = True) -> PortMethod:
    hints = get_type_hints(function)
    answer = hints.pop("return")
    defaults = {
        parameter.name: parameter.default
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is not parameter.empty
    }
    fields = [(field, kind, defaults[field]) if field in defaults else (field, kind) for field, kind in hints.items()]
    arguments = msgspec.defstruct(name.replace(".", "_"), fields, frozen=True, array_like=True)
    return PortMethod(name, arguments, answer, is_repeatable, timeout_s)


METHODS: Mapping[str, PortMethod] = MappingProxyType(
    {
        method.name: method
        for method in (
            # A submission is repeatable because every draft that is sent has an id.
            _method(JobApi.submit, "jobs.submit", _LONG_S),
            _method(JobApi.get, "jobs.get", _SHORT_S),
            _method(JobApi.result, "jobs.result", _SHORT_S),
            _method(JobApi.cancel, "jobs.cancel", _SHORT_S),
            _method(JobApi.page, "jobs.page", _LONG_S),
            _method(JobApi.explain, "jobs.explain", _SHORT_S),
            _method(JobApi.payload, "jobs.payload", _SHORT_S),
            _method(JobApi.find, "jobs.find", _LONG_S),
            # Repeatable only with a request id, which the sender checks.
            _method(JobApi.retry, "jobs.retry", _SHORT_S, is_repeatable=False),
            _method(WaitApi.changed, "jobs.changed", _SHORT_S),
            _method(WaitApi.ended, "jobs.ended", _SHORT_S),
            _method(HistoryApi.history, "histories.history", _SHORT_S),
            _method(AdminApi.stats, "admin.stats", _SHORT_S),
            _method(AdminApi.queues, "admin.queues", _LONG_S),
            _method(AdminApi.set_queue_mode, "admin.set_queue_mode", _SHORT_S),
            _method(AdminApi.purge, "admin.purge", _WALK_S, is_repeatable=False),
            _method(AdminApi.workers, "admin.workers", _SHORT_S),
            _method(AdminApi.drain_worker, "admin.drain_worker", _SHORT_S),
            _method(ScheduleApi.set, "schedules.set", _SHORT_S),
            _method(ScheduleApi.get, "schedules.get", _SHORT_S),
            _method(ScheduleApi.all, "schedules.all", _LONG_S),
            _method(ScheduleApi.delete, "schedules.delete", _SHORT_S, is_repeatable=False),
            _method(ScheduleApi.pause, "schedules.pause", _SHORT_S),
            _method(ScheduleApi.trigger, "schedules.trigger", _SHORT_S, is_repeatable=False),
            _method(ScheduleApi.preview, "schedules.preview", _SHORT_S),
        )
    }
)
_ENCODER = msgspec.msgpack.Encoder()
_ARGUMENTS = {name: msgspec.msgpack.Decoder(method.arguments) for name, method in METHODS.items()}
_ANSWERS = {name: msgspec.msgpack.Decoder(method.answer) for name, method in METHODS.items()}


# -- the client


def question(*arguments: object) -> bytes:
    """Encodes the arguments, which are in the order of the signature."""
    return _ENCODER.encode(arguments)


def answer_of(method: PortMethod, body: bytes) -> Any:  # noqa: ANN401 - of the method's type
    """Decodes the response. Raises `UnavailableError` if it is not of the method's type."""
    try:
        return _ANSWERS[method.name].decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"the response to {method.name} is not from a scheduler of this version: {error}"
        raise UnavailableError(message, reason="ANSWER_INVALID") from None


# -- the server


def routes(
    jobs: JobApi,
    admin: AdminApi,
    schedules: ScheduleApi,
    histories: HistoryApi,
    waits: "LongPolls | None" = None,
) -> dict[str, Handle]:
    """Returns the handlers by path."""
    ports: dict[str, object] = {"jobs": jobs, "admin": admin, "schedules": schedules, "histories": histories}
    waits = waits or LongPolls(jobs)
    found = {}
    for method in METHODS.values():
        port, _, name = method.name.partition(".")
        owner = waits if hasattr(waits, name) else ports[port]
        found[method.path] = _handle(method, getattr(owner, name))
    return found


def _handle(method: PortMethod, function: Callable[..., Awaitable[object]]) -> Handle:
    parameters = inspect.signature(function).parameters.values()
    named = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
    decoder, fields = _ARGUMENTS[method.name], msgspec.structs.fields(method.arguments)
    in_order = [field.name for field in fields if field.name not in named]

    async def handle(body: bytes) -> bytes:
        given = _decoded(decoder, method, body)
        values = [getattr(given, name) for name in in_order]
        return _ENCODER.encode(await function(*values, **{name: getattr(given, name) for name in named}))

    return handle


def _decoded(decoder: "msgspec.msgpack.Decoder[Any]", method: PortMethod, body: bytes) -> object:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"expected the arguments of {method.name} as MessagePack: {error}"
        raise InvalidArgumentError(message, reason="ARGUMENTS_INVALID") from None


class LongPolls:
    """`WaitApi` over a port that waits without a limit."""

    def __init__(self, jobs: JobApi) -> None:
        self._jobs = jobs
        self._timers: set[asyncio.Timeout] = set()
        self._is_stopping = False

    def let_go(self) -> None:
        """Ends all present and later polls at once, without a result."""
        self._is_stopping = True
        for timer in self._timers:
            timer.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def _for_a_while(self, wait_ms: int) -> AsyncIterator[None]:
        """Ends the block silently after `wait_ms`."""
        wait_s = 0 if self._is_stopping else min(wait_ms, WAIT_MS_MAX) / 1_000
        try:
            async with asyncio.timeout(wait_s) as timer:
                self._timers.add(timer)
                try:
                    yield
                finally:
                    self._timers.discard(timer)
        except TimeoutError:
            pass

    async def changed(self, job_id: str, seen: int, wait_ms: int) -> JobChange | None:
        """Checks the present state of the job first, so that no change is missed between two polls."""
        async with self._for_a_while(wait_ms), aclosing(cast("Any", self._jobs.watch(job_id))) as views:
            async for view in views:
                mark = _mark_of(view)
                if mark != seen:
                    return JobChange(mark, view)
        return None

    async def ended(self, job_id: str, wait_ms: int) -> EndedJob | None:
        """Waits for the end of the job."""
        ended: list[EndedJob] = []
        async with self._for_a_while(wait_ms):
            ended = [EndedJob(*await self._jobs.settled(job_id))]
        return ended[0] if ended else None


def _mark_of(view: JobView) -> int:
    """Returns a hash of the view; never 0."""
    return int.from_bytes(blake2b(_ENCODER.encode(view), digest_size=7).digest(), "big") + 1
