"""An asyncio event loop on simulated time, so that the product's asyncio code runs in the simulator as it is.

Invariants: a callback runs only inside a step of the clockwork, in the loop's own process; while that process is
stopped nothing runs, and when it is dead nothing ever does. All callbacks that are ready run in one step, in order.
"""

import asyncio
import math
import random
from asyncio.events import _get_running_loop, _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Self

from holdfast.testing.simulation.clockwork import DUE, RUNNING, Clockwork, Planned
from holdfast.testing.simulation.process import Process
from holdfast.testing.simulation.violation import Violation

_TURN_US = (1, 40)
_US = 1_000_000
#: More callbacks than this in one step are a loop that never comes to rest.
_CALLBACKS_MAX = 200_000
#: What asyncio says about objects that the garbage collector finds; when that happens is no part of a run.
_LEFT_BY_GC = ("never retrieved", "was destroyed")

Connect = Callable[[Callable[[], asyncio.BaseProtocol]], Coroutine[Any, Any, tuple[asyncio.Transport, Any]]]


class _Timer(asyncio.TimerHandle):
    """A timer that knows its call of the clockwork."""

    __slots__ = ("planned",)

    planned: Planned | None


class SimulatedLoop(asyncio.AbstractEventLoop):
    """The event loop of one simulated process."""

    def __init__(self, clock: Clockwork, process: Process, name: str, rng: random.Random) -> None:
        self._clock = clock
        self._process = process
        self._name = name
        self._rng = rng
        self._ready: deque[asyncio.Handle] = deque()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._last_timers: deque[_Timer] = deque()
        self._failure: BaseException | None = None
        self._is_running = self._is_planned = self._is_ended = False
        self._is_ending = False
        #: Makes the connections that the process asks for.
        self.connect: Connect | None = None

    @classmethod
    def of(cls, clock: Clockwork, process: Process, name: str, rng: random.Random) -> Self:
        """A loop that lacks what simulated processes do not use: sockets, signals, subprocesses, threads."""
        return cls(clock, process, name, rng)

    # -- what asyncio asks for

    def time(self) -> float:
        """Simulated steady time, in seconds."""
        return self._clock.now_us / _US

    def get_debug(self) -> bool:
        """Never."""
        return False

    def is_running(self) -> bool:
        """Whether one of its callbacks runs now."""
        return self._is_running

    def is_closed(self) -> bool:
        """Whether nothing runs any more."""
        return self._is_ended

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:  # noqa: ANN401 - as asyncio declares it
        """A task, which is kept until it is done."""
        task = asyncio.Task(coro, loop=self, **options)
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]  # noqa: ANN401
        """In this step, if a callback of this loop runs; else in a step of its own."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self._is_running and not self._is_planned and not self._is_ended:
            self._is_planned = True
            self._process.enter(self._rng.randint(*_TURN_US), f"{self._name} turn", self._turn, RUNNING)
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]  # noqa: ANN401
        """The same: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]  # noqa: ANN401
        """After so many seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]  # noqa: ANN401
        """At a simulated time."""
        timer = _Timer(when, callback, args, self, context)
        if self._is_ended:
            timer.planned = None
            self._last_timers.append(timer)
        else:
            delay_us = max(0, math.ceil(when * _US) - self._clock.now_us)
            timer.planned = self._process.enter(delay_us, f"{self._name} timer", lambda: self._ring(timer), DUE)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if isinstance(handle, _Timer) and handle.planned is not None:
            handle.planned.cancel()

    def _ring(self, timer: _Timer) -> None:
        self._ready.append(timer)
        self._turn()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An error that nothing handles is a finding, and ends the run."""
        if not any(words in context.get("message", "") for words in _LEFT_BY_GC) and self._failure is None:
            self._failure = context.get("exception") or Violation(f"{self._name}: {context['message']}")

    async def create_unix_connection(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], path: object = None, **_options: object
    ) -> tuple[asyncio.Transport, Any]:
        """A simulated connection to the server; there is one, whatever the path."""
        assert self.connect is not None, f"{self._name} is not meant to connect to {path}"
        return await self.connect(protocol_factory)

    # -- what the simulator does

    @contextmanager
    def running(self) -> Iterator[None]:
        """Within this, `asyncio.get_running_loop` gives this loop."""
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
        """A broken promise that is noticed in here ends the run, whatever the code around it does with exceptions."""
        try:
            yield
        except Violation as error:
            self._failure = self._failure or error
            raise

    def visit(self, call: Callable[[], object]) -> None:
        """Something has arrived for this process: handles it now, in a step that runs already."""
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
        raise Violation(f"{self._name} does not come to rest")

    def end(self) -> None:
        """The process is dead: its tasks are ended where nothing of it can be seen, so that none is left behind."""
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
