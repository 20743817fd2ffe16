"""An asyncio event loop on simulated time, so that the product's asyncio code runs unchanged in the simulator.

Invariants: a callback runs only inside a step of the clockwork, in the loop's own process; while that process is
stopped nothing runs, and after its death nothing ever does. All callbacks that are ready run in one step, in order.
"""

import asyncio
import math
import random
from asyncio.events import _get_running_loop, _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Self

from holdfast_lab.simulation.process import SimulatedProcess
from holdfast_lab.simulation.scheduler import DUE, RUNNING, ScheduledCall, SimulatedScheduler
from holdfast_lab.simulation.violation import Violation

_TURN_US = (1, 40)
_US = 1_000_000
#: A loop with more callbacks than this in one step never becomes idle.
_CALLBACKS_MAX = 200_000
#: Messages of asyncio about objects that the garbage collector finds; the time of that is not part of a run.
_LEFT_BY_GC = ("never retrieved", "was destroyed")

Connect = Callable[[Callable[[], asyncio.BaseProtocol]], Coroutine[Any, Any, tuple[asyncio.Transport, Any]]]


class _SimulatedTimer(asyncio.TimerHandle):
    """A timer with its call of the clockwork."""

    __slots__ = ("planned",)

    planned: ScheduledCall | None


class SimulatedLoop(asyncio.AbstractEventLoop):
    """The event loop of one simulated process."""

    def __init__(self, clock: SimulatedScheduler, process: SimulatedProcess, name: str, rng: random.Random) -> None:
        self._clock = clock
        self._process = process
        self._name = name
        self._rng = rng
        self._ready: deque[asyncio.Handle] = deque()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._last_timers: deque[_SimulatedTimer] = deque()
        self._failure: BaseException | None = None
        self._is_running = self._is_planned = self._is_ended = False
        self._is_ending = False
        #: Makes the connections of the process.
        self.connect: Connect | None = None

    @classmethod
    def of(cls, clock: SimulatedScheduler, process: SimulatedProcess, name: str, rng: random.Random) -> Self:
        """Returns a loop without sockets, signals, subprocesses and threads, which simulated processes do not use."""
        return cls(clock, process, name, rng)

    # -- the interface for asyncio

    def time(self) -> float:
        """Returns simulated monotonic time, in seconds."""
        return self._clock.now_us / _US

    def get_debug(self) -> bool:
        """Returns False."""
        return False

    def is_running(self) -> bool:
        """Whether one of its callbacks is running."""
        return self._is_running

    def is_closed(self) -> bool:
        """Whether the loop has ended."""
        return self._is_ended

    def create_future(self) -> asyncio.Future[Any]:
        """Returns a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:  # noqa: ANN401 - as asyncio declares it
        """Creates a task, and keeps it until it is done."""
        task = asyncio.Task(coro, loop=self, **options)
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]  # noqa: ANN401
        """Runs the callback in this step, if a callback of this loop is running; otherwise in a new step."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self._is_running and not self._is_planned and not self._is_ended:
            self._is_planned = True
            self._process.enter(self._rng.randint(*_TURN_US), f"{self._name} turn", self._turn, RUNNING)
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]  # noqa: ANN401
        """Same as `call_soon`: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]  # noqa: ANN401
        """Runs the callback after this many seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]  # noqa: ANN401
        """Runs the callback at a simulated time."""
        timer = _SimulatedTimer(when, callback, args, self, context)
        if self._is_ended:
            timer.planned = None
            self._last_timers.append(timer)
        else:
            delay_us = max(0, math.ceil(when * _US) - self._clock.now_us)
            timer.planned = self._process.enter(delay_us, f"{self._name} timer", lambda: self._ring(timer), DUE)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if isinstance(handle, _SimulatedTimer) and handle.planned is not None:
            handle.planned.cancel()

    def _ring(self, timer: _SimulatedTimer) -> None:
        self._ready.append(timer)
        self._turn()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Records an unhandled error, which ends the run."""
        if not any(words in context.get("message", "") for words in _LEFT_BY_GC) and self._failure is None:
            self._failure = context.get("exception") or Violation(f"{self._name}: {context['message']}")

    async def create_unix_connection(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], path: object = None, **_options: object
    ) -> tuple[asyncio.Transport, Any]:
        """Returns a simulated connection to the server; the path is ignored."""
        assert self.connect is not None, f"{self._name} is not meant to connect to {path}"
        return await self.connect(protocol_factory)

    # -- the interface for the simulator

    @contextmanager
    def running(self) -> Iterator[None]:
        """Makes `asyncio.get_running_loop` return this loop within the block."""
        before, was_running = _get_running_loop(), self._is_running
        _set_running_loop(self)
        self._is_running = True
        try:
            yield
        finally:
            self._is_running = was_running
            _set_running_loop(before)

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Ends the run on a violation within the block, even if the code around it catches exceptions."""
        try:
            yield
        except Violation as error:
            self._failure = self._failure or error
            raise

    def visit(self, call: Callable[[], object]) -> None:
        """Handles an arrival for this process now, in the current step."""
        if not self._is_ended:
            self._ready.append(asyncio.Handle(call, (), self))
            self._turn()

    def _turn(self) -> None:
        self._is_planned = False
        if not self._is_ended:
            self._run_ready()

    def _run_ready(self) -> None:
        ready = self._ready
        with self.running():
            for _ in range(_CALLBACKS_MAX):
                if not ready:
                    return
                handle = ready.popleft()
                if not handle.cancelled():
                    handle._run()  # noqa: SLF001 - as every event loop does
                if self._failure is not None and not self._is_ended:
                    failure, self._failure = self._failure, None
                    raise failure
        raise Violation(f"{self._name} never becomes idle")

    def end(self) -> None:
        """Ends the dead process: its tasks end without visible effect, so that none is left behind."""
        self._is_ended = True
        self._process.is_alive = False
        if not self._is_running:
            self._end_tasks()
        elif not self._is_ending:
            self._clock.after(0, f"{self._name} ends", self._end_tasks)
        self._is_ending = True

    def _end_tasks(self) -> None:
        for _ in range(_ENDINGS):
            for task in list(self._tasks):
                task.cancel()
            self._run_ready()
            while self._last_timers and not self._ready:
                timer = self._last_timers.popleft()
                if not timer.cancelled():
                    self._ready.append(timer)
            if not self._tasks and not self._ready:
                break
        self._ready.clear()


#: A task that cleans up may wait a few times before it ends.
_ENDINGS = 30
