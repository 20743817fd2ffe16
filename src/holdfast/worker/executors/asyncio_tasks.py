"""Runs handlers that are coroutines: each attempt is a task on the worker's loop."""

import asyncio
import time
from collections import deque
from collections.abc import Callable

from holdfast.core.commands import ReportRow
from holdfast.observe.logs import get_logger
from holdfast.worker.context import CURRENT, JobContext, TimeoutInterrupt
from holdfast.worker.executors.port import Ended, ExecutorCallbacks
from holdfast.worker.outcomes import failed, interrupted, succeeded


class TaskExecutor:
    """Tasks by attempt. A task that swallows its cancellation is left behind after the grace period."""

    def __init__(self, callbacks: ExecutorCallbacks, *, kill_grace_ms: int) -> None:
        self._callbacks = callbacks
        self._grace_s = kill_grace_ms / 1_000
        self._tasks: dict[JobContext, asyncio.Task[None]] = {}
        self._timers: dict[JobContext, asyncio.TimerHandle] = {}
        self._left_behind: set[asyncio.Task[None]] = set()
        self._ended: list[Ended] = []
        #: Ids of jobs that have ended since `watch_loop` last cleared this.
        self.just_ended: deque[str] = deque(maxlen=20)

    @property
    def running(self) -> int:
        """The number of attempts that occupy a slot."""
        return len(self._tasks)

    @property
    def left_behind(self) -> int:
        """The number of tasks that still run although they were canceled twice."""
        return len(self._left_behind)

    @property
    def job_ids(self) -> list[str]:
        """Ids of jobs whose code runs on the loop, or has just run there."""
        return [*(context.job_id for context in self._tasks), *self.just_ended]

    def start(self, context: JobContext) -> None:
        """Creates the task, which begins in the loop's next turn."""
        self._tasks[context] = asyncio.get_running_loop().create_task(self._attempt(context))

    def interrupt(self, context: JobContext) -> None:
        """Cancels the task."""
        task = self._tasks.get(context)
        if task is None:
            return
        task.cancel()
        if not context.started_s:  # canceled before its first step, so none of its code will run
            self._end(context, interrupted(context))
        else:
            self._set_timer(context, self._grace_s, self._write_off)

    async def close(self) -> None:
        """Cancels the remaining tasks, and waits for them up to the grace period."""
        tasks = [*self._tasks.values(), *self._left_behind]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._grace_s)

    async def _attempt(self, context: JobContext) -> None:
        context.started_s = time.monotonic()
        CURRENT.set(context)
        if context.assignment.timeout_ms:
            self._set_timer(context, context.assignment.timeout_ms / 1_000, self._expire)
        try:
            output = context.handler.run(context.assignment)
            row = succeeded(context, output if isinstance(output, bytes) else await output)
        except BaseException as error:  # noqa: BLE001 - without a report, the worker would keep the lease for ever
            row = failed(context, error)
        self._end(context, row)

    def _set_timer(self, context: JobContext, delay_s: float, act: Callable[[JobContext], None]) -> None:
        self._drop_timer(context)
        self._timers[context] = asyncio.get_running_loop().call_later(delay_s, act, context)

    def _drop_timer(self, context: JobContext) -> None:
        timer = self._timers.pop(context, None)
        if timer is not None:
            timer.cancel()

    def _expire(self, context: JobContext) -> None:
        context.interrupt = TimeoutInterrupt
        self.interrupt(context)

    def _write_off(self, context: JobContext) -> None:
        """Frees the slot of a task that does not end, and cancels the task once more."""
        task = self._tasks[context]
        self._left_behind.add(task)
        task.add_done_callback(self._left_behind.discard)
        task.cancel()
        self._callbacks.tally.written_off += 1
        get_logger().warning(
            "written_off",
            job_id=context.job_id,
            mode="async",
            message="the coroutine swallowed its cancellation; let asyncio.CancelledError propagate",
        )
        self._end(context, interrupted(context))

    def _end(self, context: JobContext, row: ReportRow) -> None:
        if self._tasks.pop(context, None) is None:
            return
        self._drop_timer(context)
        self.just_ended.append(context.assignment.job_id)
        if not self._ended:  # attempts that end in one turn of the loop are reported together
            asyncio.get_running_loop().call_soon(self._tell)
        self._ended.append((context, row))

    def _tell(self) -> None:
        ended, self._ended = self._ended, []
        self._callbacks.ended(ended)
