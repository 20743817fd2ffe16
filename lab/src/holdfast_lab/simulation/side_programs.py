"""Programs that run beside the coordinator, a few calls at a time.

Each has a thread of its own, but only one thread runs at any moment: the simulation hands control over and waits until
it returns, which happens between two calls of the disk. So only the seed determines the order.
"""

import random
import threading
from collections.abc import Callable

from holdfast_lab.simulation.disk import SimDisk
from holdfast_lab.simulation.process import SimulatedProcess
from holdfast_lab.simulation.process_disk import Killed, ProcessDisk
from holdfast_lab.simulation.scheduler import SimulatedScheduler

_CALLS_AT_ONCE = 12
_PAUSE_US = (10, 3_000)

Program = Callable[[ProcessDisk], object]


class SideProgram:
    """One program; it dies with the coordinator's process, or at its call `killed_at` of the disk."""

    def __init__(self, disk: SimDisk, program: Program, rng: random.Random, killed_at: int | None = None) -> None:
        self._program = program
        self._rng = rng
        self._killed_at = killed_at
        self._disk = ProcessDisk(disk, self._tick)
        self._calls = 0
        self._left = 0
        # Each lock is acquired by the waiting side and released by the other, in turn.
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._is_killed = False
        self.is_over = False
        self.result: object = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="beside", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        self._go.acquire()
        try:
            self._left = self._rng.randint(1, _CALLS_AT_ONCE)
            self.result = self._program(self._disk)
        except BaseException as error:  # noqa: BLE001 - the simulation judges any error
            self.error = error
        self._disk.end()
        self.is_over = True
        self._back.release()

    def _tick(self) -> None:
        """Runs before each call: control may return to the simulation, and the process may be killed meanwhile."""
        self._calls += 1
        self._is_killed |= self._killed_at is not None and self._calls >= self._killed_at
        self._left -= 1
        if self._left < 0 and not self._is_killed:
            self._left = self._rng.randint(0, _CALLS_AT_ONCE)
            self._back.release()
            self._go.acquire()
        if self._is_killed:
            raise Killed

    def advance(self) -> None:
        """Makes a few more calls."""
        self._go.release()
        self._back.acquire()

    def kill(self) -> None:
        """Kills the program: no further call reaches the disk."""
        self._is_killed = True
        while not self.is_over:
            self.advance()

    def run(
        self, clock: SimulatedScheduler, process: SimulatedProcess, kind: str, then: Callable[["SideProgram"], None]
    ) -> None:
        """Runs until it is over, then calls `then`; ends without that if the coordinator's process ends."""
        if not process.is_alive:
            self.kill()
            return
        self.advance()
        if self.is_over:
            then(self)
        else:
            delay_us = self._rng.randint(*_PAUSE_US)
            clock.after(delay_us, kind, lambda: self.run(clock, process, kind, then))
