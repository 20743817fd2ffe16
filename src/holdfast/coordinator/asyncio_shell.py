"""The coordinator's ports on asyncio and one thread; the only module of this package that knows either."""

import asyncio
import threading
import time
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


#: A sync longer than this would keep the loop from its sockets for too long.
_QUICK_S = 0.002
#: After a slow sync, so many go to the thread before one is tried again on the loop's own; twice as many each time that
#: this one is slow too, up to the second number.
_WARY_FRAMES = 8
_WARY_FRAMES_MAX = 1_024


class SyncingThread:
    """One thread that writes and syncs, fed through a queue. It ends with `close`.

    Handing a frame over and back costs about as long as a quick disk takes to sync it. So the frame of a lone caller is
    synced on the loop's own thread, as long as the disk is quick.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._wary = 0
        self._distrust = _WARY_FRAMES
        self._thread = threading.Thread(target=self._serve, name="holdfast-sync", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], int], done: Callable[[int | BaseException], None], *, is_lone: bool) -> None:
        """Does the work at once for a lone caller, or hands it over; `done` is called on the loop's thread."""
        if is_lone and not self._wary:
            started = time.perf_counter()
            result = _attempted(work)
            if time.perf_counter() - started > _QUICK_S:
                self._wary = self._distrust
                self._distrust = min(2 * self._distrust, _WARY_FRAMES_MAX)
            else:
                self._distrust = _WARY_FRAMES
            done(result)
            return
        self._wary = max(0, self._wary - 1)
        self._queue.put((work, done))

    def close(self) -> None:
        """Ends the thread once it has finished what it was given."""
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (item := self._queue.get()) is not None:
            work, done = item
            try:
                self._loop.call_soon_threadsafe(done, _attempted(work))
            except RuntimeError:  # the loop was closed under us: nobody is left to answer
                return


def _attempted(work: Callable[[], int]) -> int | BaseException:
    try:
        return work()
    except BaseException as error:  # noqa: BLE001 - whatever it is, the loop must stop because of it
        return error
