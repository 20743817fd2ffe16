"""A handle of one job: read it, wait for it or cancel it, from a thread or from any event loop."""

import time
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from holdfast.core.failure import failure_of
from holdfast.core.history import Entry
from holdfast.core.lifecycle import CANCELED, DONE, TERMINAL, State
from holdfast.errors import HoldfastError, InvalidArgumentError, NotFoundError, UnimplementedError
from holdfast.ports import ForgetApi, JobView, Progress, ResultView
from holdfast.sdk.codec import Codec, decode_any
from holdfast.sdk.errors import NO_WORKER_TEXT, JobCanceledError, JobFailedError, ResultTimeoutError
from holdfast.sdk.sync_async import async_iterator, async_method, sync_iterator, sync_method
from holdfast.sdk.worker_check import ATTENDED_S, SERVED_S, check_attended, is_attended, warn_if_stuck

if TYPE_CHECKING:
    from holdfast.client.link import BlockingCalls
    from holdfast.sdk.connection import AppConnection
    from holdfast.sdk.portal import Portal

T = TypeVar("T")

#: After its timeout, `result()` reads the job once more, and waits at most this long for the answer.
_LAST_LOOK_S = 1.0
#: Some years. A longer timeout, such as infinity, means no timeout: not every clock can count that far.
_FOR_EVER_S = 1e8


class Job(Generic[T]):
    """One job that was accepted. Every method `name` that calls the backend has an async version `aname`."""

    __slots__ = ("_codec", "_connection", "id", "is_existing", "seen")

    def __init__(
        self,
        connection: "AppConnection",
        job_id: str,
        codec: Callable[[], Codec] | None = None,
        *,
        seen: JobView | None = None,
        is_existing: bool = False,
    ) -> None:
        self._connection = connection
        self._codec = codec
        self.id = job_id
        #: The job as `get` or `find` read it.
        self.seen = seen
        #: Whether the submission found this job, by its request id or unique key, instead of making it.
        self.is_existing = is_existing

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __await__(self) -> Generator[Any, None, T]:
        return self.aresult().__await__()

    async def _view(self) -> JobView:
        """Returns everything that is stored about the job, as it is now."""
        return await self._connection.call(lambda ports: ports.jobs.get(self.id))

    async def _status(self) -> State:
        """Returns the current state."""
        return (await self._view()).state

    async def _progress(self) -> Progress | None:
        """Returns the progress that the running attempt has reported; None if it has reported none."""
        return (await self._view()).progress

    async def _why(self) -> str:
        """Returns a sentence that explains the job's current state."""
        return (await self._connection.call(lambda ports: ports.jobs.explain(self.id))).sentence

    async def _history(self) -> list[Entry]:
        """Returns everything that happened to the job, oldest first."""
        return await self._connection.call(lambda ports: ports.feed.history(self.id))

    async def _cancel(self, reason: str = "") -> State:
        """Cancels a queued job, or requests that a running one stop; returns the state after that."""
        return (await self._connection.call(lambda ports: ports.jobs.cancel(self.id, reason))).state

    async def _retry(self) -> "Job[T]":
        """Submits a new job like this one, which must have ended."""
        # The request id lets the link repeat the request; each call of this method makes a job of its own.
        request_id = f"retry-{self._connection.mint()}"
        job_id = await self._connection.call(lambda ports: ports.jobs.retry(self.id, request_id))
        return Job(self._connection, job_id, self._codec)

    async def _forget(self) -> None:
        """Deletes an ended job and its result. Only with `zk://`; other backends delete jobs after their retention."""
        with suppress(NotFoundError):  # a repeated request may find it deleted
            await self._connection.call(lambda ports: _forgetting(ports.jobs).forget(self.id))

    def result(self, timeout_s: float | None = None) -> T:
        """Waits for the end of the job, and returns its result.

        Raises JobFailedError or JobCanceledError if it ended so, and ResultTimeoutError if it has not ended in time;
        `timeout_s=0` does not wait. Without a timeout, raises NoWorkerError for a job in memory that no worker of this
        process will run.
        """
        timeout_s = _bounded(timeout_s)
        blocking_calls = self._connection.blocking_calls() if timeout_s is None or timeout_s > 0 else None
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        if blocking_calls is not None:
            try:
                settled = self._settled_near(blocking_calls, timeout_s)
            except HoldfastError as error:
                if not error.retryable:
                    raise
            else:
                if settled is not None:
                    return self._outcome(*settled)
        left_s = None if end_s is None else max(0.0, end_s - time.monotonic())
        return self._portal().run(lambda: self._result(left_s, timeout_s))

    async def aresult(self, timeout_s: float | None = None) -> T:
        """Async version of `result`."""
        bounded_s = _bounded(timeout_s)
        return await self._portal().arun(lambda: self._result(bounded_s, bounded_s))

    async def _result(self, timeout_s: float | None, asked_s: float | None) -> T:
        """Waits for `timeout_s`. `asked_s` is the caller's whole timeout, of which some may have passed already."""
        if timeout_s is None:
            return self._outcome(*await self._settled_unhurried())
        import asyncio

        try:
            async with asyncio.timeout(timeout_s if timeout_s > 0 else _LAST_LOOK_S if asked_s else None):
                job, result = await (self._settled() if timeout_s > 0 else self._settled_by_now())
        except TimeoutError as error:
            if isinstance(error, HoldfastError):
                raise
            raise ResultTimeoutError(self.id, asked_s or 0, await self._why_briefly()) from None
        return self._outcome(job, result)

    def _settled_near(
        self, blocking_calls: "BlockingCalls", timeout_s: float | None
    ) -> tuple[JobView, ResultView] | None:
        """Waits on the caller's thread; without a timeout, checks repeatedly whether there is a worker."""
        if timeout_s is not None:
            return blocking_calls.settled(self.id, timeout_s)
        if not self._connection.is_private():
            settled = blocking_calls.settled(self.id, SERVED_S)
            if settled is None:
                self._portal().run(lambda: warn_if_stuck(self._connection, self.id))
                settled = blocking_calls.settled(self.id, None)
            return settled
        while (settled := blocking_calls.settled(self.id, ATTENDED_S)) is None:
            self._portal().run(lambda: check_attended(self._connection, self.id))
        return settled

    async def _settled_unhurried(self) -> tuple[JobView, ResultView]:
        """Waits without a timeout, on the portal's loop."""
        import asyncio

        while True:
            try:
                async with asyncio.timeout(ATTENDED_S if self._connection.is_private() else SERVED_S):
                    return await self._settled()
            except TimeoutError as error:
                if isinstance(error, HoldfastError):
                    raise
            if not self._connection.is_private():
                await warn_if_stuck(self._connection, self.id)
                return await self._settled()
            await check_attended(self._connection, self.id)

    async def _settled(self) -> tuple[JobView, ResultView]:
        return await self._connection.call(lambda ports: ports.jobs.settled(self.id), is_waiting=True)

    async def _settled_by_now(self) -> tuple[JobView, ResultView]:
        result = await self._connection.call(lambda ports: ports.jobs.result(self.id))
        if result.state not in TERMINAL:
            raise TimeoutError
        return await self._view(), result

    async def _why_briefly(self) -> str:
        import asyncio

        try:
            async with asyncio.timeout(1):
                if self._connection.is_private() and not await is_attended(self._connection):
                    return NO_WORKER_TEXT
                return await self._why()
        except (HoldfastError, TimeoutError):
            return ""

    def _outcome(self, job: JobView, result: ResultView) -> T:
        if result.state == DONE:
            return cast("T", self._codec().decode_result(result.output) if self._codec else decode_any(result.output))
        if result.state == CANCELED:
            raise JobCanceledError(self.id, result.summary)
        failure = failure_of(result.output)
        reason = job.failure_reason or result.summary
        raise JobFailedError(self.id, reason, failure.type, failure.traceback, result.summary)

    async def _events(self) -> AsyncIterator[JobView]:
        """Yields the job now and after each change, until it has ended; changes may be merged, but never the last."""
        last: JobView | None = None
        async for view in self._connection.stream(lambda ports: ports.jobs.watch(self.id)):
            if view != last:
                last = view
                yield view

    view, aview = sync_method(_view), async_method(_view)
    status, astatus = sync_method(_status), async_method(_status)
    progress, aprogress = sync_method(_progress), async_method(_progress)
    why, awhy = sync_method(_why), async_method(_why)
    history, ahistory = sync_method(_history), async_method(_history)
    cancel, acancel = sync_method(_cancel), async_method(_cancel)
    retry, aretry = sync_method(_retry), async_method(_retry)
    forget, aforget = sync_method(_forget), async_method(_forget)
    events, aevents = sync_iterator(_events), async_iterator(_events)

    def _portal(self) -> "Portal":
        return self._connection.portal()


def _forgetting(jobs: object) -> ForgetApi:
    if not isinstance(jobs, ForgetApi):
        message = "only zk:// can delete single jobs; here, ended jobs are deleted after their retention time"
        raise UnimplementedError(message, reason="FORGET_UNSUPPORTED")
    return jobs


def _bounded(timeout_s: object) -> float | None:
    """Returns the timeout; None if there is none or if it is very long."""
    if not isinstance(timeout_s, int | float | None):
        message = f"timeout_s must be a number of seconds, or None to wait until the job has ended, got {timeout_s!r}"
        raise InvalidArgumentError(message, reason="OPTION_INVALID")
    return None if timeout_s is None or timeout_s > _FOR_EVER_S else timeout_s
