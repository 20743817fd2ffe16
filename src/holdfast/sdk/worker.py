"""`app.worker()`: runs jobs in this process, on a separate loop, so that job code cannot block a coordinator."""

import asyncio
import contextlib
import warnings
from collections.abc import Awaitable, Callable, Mapping
from typing import Self

from holdfast.errors import (
    AbortedError,
    FailedPreconditionError,
    HoldfastError,
    PermissionDeniedError,
)
from holdfast.ports import Introduction, WorkApi, WorkSession
from holdfast.process.signals import on_stop
from holdfast.sdk.connection import AppConnection
from holdfast.sdk.portal import Portal, new_loop
from holdfast.worker.config import WorkerConfig
from holdfast.worker.handlers import Handler
from holdfast.worker.runtime import Worker

_APP_CLOSED = "APP_CLOSED"


class AppWork:
    """A `WorkApi` over an app's connection, for a worker on any loop."""

    def __init__(self, connection: AppConnection) -> None:
        self._connection = connection

    async def open(self, introduction: Introduction) -> WorkSession:
        """Opens a session with the process that currently serves, which may be this one.

        `AbortedError` if no later try can succeed: the app is closed, or the directory is damaged, forbidden or not
        a data directory.
        """
        try:
            work: WorkApi = await self._connection.portal().arun(self._connection.work)
        except HoldfastError as error:
            if error.reason == _APP_CLOSED or not error.retryable:
                raise AbortedError(error.message, reason=error.reason) from error
            raise
        return await work.open(introduction)


class AppWorker:
    """One worker of this process: `run` it here, or use it in a `with` block to run it in the background."""

    def __init__(
        self,
        connection: AppConnection,
        handlers: Mapping[str, Handler],
        config: WorkerConfig,
        prepare: Callable[[], Awaitable[object]],
        report: Callable[[], Awaitable[None]],
    ) -> None:
        """Once attached, the worker calls `prepare`, which sets the app's schedules, and then `report`."""
        self._connection = connection
        self._prepare = prepare
        self._report = report
        self._handlers = handlers
        self._config = config
        self._portal: Portal | None = None
        #: The loop of a worker that runs in the thread that called `run`.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: Worker | None = None
        self._task: asyncio.Task[None] | None = None
        connection.workers.add(self)

    @property
    def id(self) -> str:
        """The worker's id."""
        return self._config.worker_id

    def run(self) -> None:
        """Works until SIGTERM, SIGINT or `stop`; a second signal hands running jobs back."""
        self._refuse_second()
        self._connection.workers.add(self)
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                runner.run(self._work_here())
        finally:
            self._connection.workers.discard(self)
            self._worker = self._loop = None

    async def _work_here(self) -> None:
        worker = self._make()
        self._loop = asyncio.get_running_loop()
        with on_stop(worker.stop):
            running = asyncio.create_task(worker.run())
            try:
                await self._reach(worker, running)
            except BaseException:
                worker.stop()
                await running
                raise
            await running

    async def _reach(self, worker: Worker, running: asyncio.Task[None]) -> None:
        """Waits until the worker is attached and has set the schedules, or until it has ended."""
        attached = asyncio.create_task(worker.attached.wait())
        await asyncio.wait([running, attached], return_when=asyncio.FIRST_COMPLETED)
        attached.cancel()
        if running.done():
            return
        try:
            await self._prepare()
        except PermissionDeniedError as error:  # the worker can run jobs all the same
            warnings.warn(f"the schedules of this app were not set: {error.message}", RuntimeWarning, stacklevel=1)
        await self._report()

    def start(self) -> Self:
        """Works in the background; returns once the worker can run jobs."""
        self._refuse_second()
        self._connection.workers.add(self)
        self._portal = Portal(f"holdfast-worker-{self.id}"[:15])
        try:
            self._portal.run(self._begin)
        except BaseException:
            self._connection.workers.discard(self)
            self._portal.close()
            self._portal = self._worker = None
            raise
        self._connection.before_close(self.stop)
        return self

    def stop(self, timeout_s: float | None = None) -> None:
        """Takes no more jobs and finishes the running ones; hands back those that take too long.

        Waits for the end of a background worker. For a worker that `run`s in another thread, this returns at once.
        """
        worker, loop = self._worker, self._loop
        if worker is not None and loop is not None:
            with contextlib.suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(worker.stop)
        portal, self._portal = self._portal, None
        if portal is not None:
            try:
                portal.run(lambda: self._end(timeout_s))
            finally:
                portal.close()
                self._connection.workers.discard(self)
                self._worker = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _refuse_second(self) -> None:
        if self._worker is not None:
            raise FailedPreconditionError(
                "this worker is already running; make another one with app.worker()",
                reason="WORKER_RUNNING",
            )

    def _make(self) -> Worker:
        self._worker = Worker(AppWork(self._connection), self._handlers, self._config)
        return self._worker

    async def _begin(self) -> None:
        worker = self._make()
        self._task = asyncio.create_task(worker.run())
        try:
            await self._reach(worker, self._task)
        except BaseException:
            await self._end(None)
            raise
        if self._task.done():
            self._task.result()

    async def _end(self, timeout_s: float | None) -> None:
        assert self._worker is not None
        assert self._task is not None
        if not self._task.done():
            self._worker.stop()
            done, _ = await asyncio.wait([self._task], timeout=timeout_s)
            if not done:
                self._worker.stop()
        try:
            await self._task
        except AbortedError as error:
            if error.reason != "APP_CLOSED":  # another thread closed the app, which ends the worker
                raise
