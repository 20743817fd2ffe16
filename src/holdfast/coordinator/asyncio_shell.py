"""The coordinator's ports on asyncio and one thread; the only module of this package that knows either."""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue

from holdfast.coordinator.ports import Timer

Work = tuple[Callable[[], int], Callable[[int | BaseException], None]]


class AsyncioScheduler:
    """Calls on the event loop's thread."""

    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def soon(self, call: Callable[[], None]) -> None:
        """In the next round of the loop."""
        self._loop.call_soon(call)

    def later(self, delay_ms: int, call: Callable[[], None]) -> Timer:
        """After the delay."""
        return self._loop.call_later(delay_ms / 1_000, call)


class SyncingThread:
    """One thread that writes and syncs, fed through a queue. It ends with `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="holdfast-sync", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], int], done: Callable[[int | BaseException], None]) -> None:
        """Hands one piece of work over; `done` is called on the loop's thread."""
        self._queue.put((work, done))

    def close(self) -> None:
        """Ends the thread once it has finished what it was given."""
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (item := self._queue.get()) is not None:
            work, done = item
            result: int | BaseException
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - whatever it is, the loop must stop because of it
                result = error
            try:
                self._loop.call_soon_threadsafe(done, result)
            except RuntimeError:  # the loop was closed under us: nobody is left to answer
                return
