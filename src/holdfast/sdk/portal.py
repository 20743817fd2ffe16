"""The portal: one background thread with an event loop, on which the calls of an app run, except blocking calls.

Invariants: a caller never waits on the portal's own thread; a caller that gives up cancels its call.
"""

import asyncio
import contextlib
import contextvars
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar, cast

from holdfast.errors import FailedPreconditionError, UnavailableError

T = TypeVar("T")
Call = Callable[[], Coroutine[Any, Any, T]]
_END = object()


class _Waiter(Generic[T]):
    """One sync caller that waits on a lock: cheaper than a future, and a signal wakes it."""

    __slots__ = ("_lock", "error", "task", "value")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.value: T | None = None
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None

    async def run(self, call: Call[T]) -> None:
        try:
            self.value = await call()
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            self.error = error
        self._lock.release()

    def wait(self) -> T:
        self._lock.acquire()
        if isinstance(self.error, asyncio.CancelledError):
            raise _closed()  # only the close of the portal cancels a call while its caller waits
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None  # breaks the reference cycle of the traceback and this frame
        return cast("T", self.value)


class Portal:
    """Runs coroutines for callers on any thread or loop. The thread starts at once, and keeps `owner` alive."""

    def __init__(self, name: str = "holdfast", owner: object = None) -> None:
        self._owner = owner
        self._loop = new_loop()
        self._is_closed = False
        self._pid = os.getpid()
        #: Separates calls from `close`: a call that was scheduled before it is started and cancelled, and none is
        #: scheduled after it. Reentrant, because a signal handler may call while its thread holds the lock.
        self._closing = threading.RLock()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def run(self, call: Call[T]) -> T:
        """Runs the call and waits for it; an interrupt ends the wait and cancels the call."""
        self.refuse_own_thread()
        waiter: _Waiter[T] = _Waiter()
        self._soon(self._start, waiter, call)
        try:
            return waiter.wait()
        except BaseException as error:  # an interrupt of the thread; after an `Exception` the call is over already
            if not isinstance(error, Exception):
                with contextlib.suppress(UnavailableError):
                    self._soon(self._give_up, waiter)
            raise

    async def arun(self, call: Call[T]) -> T:
        """Runs the call and awaits it on the caller's loop, without blocking that loop."""
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return await call()
        future: asyncio.Future[T] = loop.create_future()
        waiter: _Waiter[T] = _Waiter()

        async def hand_over() -> None:
            await waiter.run(call)
            with contextlib.suppress(RuntimeError):  # the caller's loop was closed meanwhile
                loop.call_soon_threadsafe(_settle, future, waiter)

        self._soon(self._start_task, waiter, hand_over)
        try:
            return await future
        except asyncio.CancelledError:
            with contextlib.suppress(UnavailableError):
                self._soon(self._give_up, waiter)
            raise

    def iterate(self, stream: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        """Yields the items of a stream; leaving the loop early closes the stream."""
        iterator = stream()
        try:
            while (item := self.run(lambda: _next(iterator))) is not _END:
                yield cast("T", item)
        finally:
            self.run(lambda: _close(iterator))

    async def aiterate(self, stream: Callable[[], AsyncIterator[T]]) -> AsyncIterator[T]:
        """Async version of `iterate`, for any loop."""
        iterator = stream()
        try:
            while (item := await self.arun(lambda: _next(iterator))) is not _END:
                yield cast("T", item)
        finally:
            await self.arun(lambda: _close(iterator))

    def close(self) -> None:
        """Ends the loop and its thread; cancels the calls that still run."""
        if self._pid != os.getpid():
            return  # a forked child has the object, but not the thread
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        if not self.is_here:
            self._thread.join()

    @property
    def is_here(self) -> bool:
        """Whether the caller runs on the portal's own thread."""
        return threading.current_thread() is self._thread

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_end_all())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()

    def refuse_own_thread(self) -> None:
        """Raises on the portal's own thread, which must not wait for itself."""
        if self.is_here:
            raise FailedPreconditionError(
                "a blocking call was made on Holdfast's own thread, which would wait for itself;"
                " await the async version (asubmit, aresult, ...) instead",
                reason="BLOCKING_CALL",
            )

    def _soon(self, function: Callable[..., object], *args: object) -> None:
        if self._pid != os.getpid():
            raise _closed()
        with self._closing:
            if self._is_closed:
                raise _closed()
            # An empty context, so that the call neither sees the caller's context variables nor keeps them alive.
            self._loop.call_soon_threadsafe(function, *args, context=contextvars.Context())

    def _start(self, waiter: _Waiter[T], call: Call[T]) -> None:
        waiter.task = self._loop.create_task(waiter.run(call))

    def _start_task(self, waiter: _Waiter[T], call: Call[None]) -> None:
        waiter.task = self._loop.create_task(call())

    def _give_up(self, waiter: _Waiter[T]) -> None:
        if waiter.task is not None:
            waiter.task.cancel()


def new_loop() -> asyncio.AbstractEventLoop:
    """Returns a loop of uvloop if it is installed, else of asyncio."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _settle(future: "asyncio.Future[T]", waiter: _Waiter[T]) -> None:
    if future.done():
        return
    if isinstance(waiter.error, asyncio.CancelledError):
        future.set_exception(_closed())
    elif waiter.error is not None:
        future.set_exception(waiter.error)
    else:
        future.set_result(cast("T", waiter.value))


def _closed() -> UnavailableError:
    return UnavailableError("the app is closed; make another Holdfast(...)", reason="APP_CLOSED")


async def _next(iterator: AsyncIterator[T]) -> T | object:
    return await anext(iterator, _END)


async def _close(iterator: AsyncIterator[T]) -> None:
    if hasattr(iterator, "aclose"):
        await iterator.aclose()


async def _end_all() -> None:
    """Cancels the remaining tasks, and waits for them."""
    tasks = asyncio.all_tasks() - {cast("asyncio.Task[Any]", asyncio.current_task())}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
