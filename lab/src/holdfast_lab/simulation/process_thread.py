"""A thread of a simulated process, in which blocking code of the product runs.

Only one thread runs at any moment: the simulation hands control over, and gets it back when the code waits or ends. So
only the seed determines the order. A thread of a stopped process does not continue, and one of a dead process is
unwound.
"""

import random
import threading
from collections import deque
from collections.abc import Callable

from holdfast_lab.simulation.process import SimulatedProcess
from holdfast_lab.simulation.scheduler import Call
from holdfast_lab.simulation.violation import Violation

_HANDOVER_US = (1, 60)

#: Work for a thread, and the receiver of its result.
_Job = tuple[Callable[[], int], Callable[[int | BaseException], None]]


class ThreadEndedError(BaseException):
    """The process of this thread has ended; not an Exception, so that no handler of the program swallows it."""


class ProcessThread:
    """A `SyncThread` of one process; its work may wait for simulated time, and for the answers of a database."""

    def __init__(self, process: SimulatedProcess, rng: random.Random, name: str) -> None:
        self._process = process
        self._rng = rng
        self._name = name
        self._queue: deque[_Job] = deque()
        self._job: _Job | None = None
        self._result: int | BaseException | None = None
        self._is_ended = False
        # Each lock is acquired by the waiting side and released by the other, in turn.
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._thread: threading.Thread | None = None

    # -- on the simulation's thread

    def run(self, work: Callable[[], int], done: Callable[[int | BaseException], None], *, is_lone: bool) -> None:
        """Runs the work after the work that waits already."""
        del is_lone
        self._queue.append((work, done))
        self._begin()

    def end(self) -> None:
        """Unwinds the thread with its process."""
        self._is_ended = True
        self._queue.clear()
        if self._thread is not None:
            self._go.release()
            self._back.acquire()
            self._thread.join()
            self._thread = None

    def _begin(self) -> None:
        if self._job is None and self._queue and not self._is_ended:
            self._job = self._queue.popleft()
            self._resume_after(self._rng.randint(*_HANDOVER_US))

    def _resume_after(self, delay_us: int) -> None:
        self._process.enter(delay_us, self._name, self._switch)

    def _switch(self) -> None:
        """Lets the thread run until it waits or has finished its work."""
        if self._is_ended:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._main, name=self._name, daemon=True)
            self._thread.start()
        self._go.release()
        self._back.acquire()
        if self._result is not None:
            self._finish()

    def _finish(self) -> None:
        (job, result), self._job, self._result = (self._job, self._result), None, None
        assert job is not None
        assert result is not None
        if isinstance(result, Violation):
            raise result
        self._process.enter(self._rng.randint(*_HANDOVER_US), f"{self._name} done", lambda: job[1](result))
        self._begin()

    # -- on the thread

    def _main(self) -> None:
        self._go.acquire()
        while not self._is_ended:
            assert self._job is not None
            try:
                self._result = self._job[0]()
            except ThreadEndedError:
                break
            except BaseException as error:  # noqa: BLE001 - the receiver judges any error
                self._result = error
            self._park()
        self._back.release()

    def _park(self) -> None:
        self._back.release()
        self._go.acquire()

    def wait(self, for_ms: int) -> None:
        """Blocks the work for this long."""
        self.block(lambda _: self._resume_after(for_ms * 1_000))

    def block(self, start: Callable[[Call], None]) -> None:
        """Blocks the work until the call is made that `start` gets; it must be made once, by the simulation."""
        start(lambda: self._resume_after(0))
        self._park()
        if self._is_ended:
            raise ThreadEndedError
