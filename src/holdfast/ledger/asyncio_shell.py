"""The coordinator's ports `Scheduler` and `SyncThread`, implemented with asyncio and one thread."""

import asyncio
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from holdfast.ledger.ports import Timer


class AsyncioScheduler:
    """Makes calls on the event loop's thread."""

    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def soon(self, call: Callable[[], None]) -> None:
        """Makes a call in the next iteration of the loop."""
        self._loop.call_soon(call)

    def later(self, delay_ms: int, call: Callable[[], None]) -> Timer:
        """Makes a call after the delay."""
        return self._loop.call_later(delay_ms / 1_000, call)


#: The loop waits at most this long for the frame of a lone caller; then it returns to its sockets.
_QUICK_S = 0.002
#: After a slow sync the loop does not wait for this many frames. The number doubles whenever the next wait is slow too,
#: up to `_WARY_FRAMES_MAX`.
_WARY_FRAMES = 8
_WARY_FRAMES_MAX = 1_024


class _Handover:
    """One piece of work for the thread, and its result."""

    __slots__ = ("answered", "done", "result", "settled", "work")

    def __init__(self, work: Callable[[], int], done: Callable[[int | BaseException], None]) -> None:
        self.work = work
        self.done = done
        self.result: int | BaseException = 0
        #: Released by the thread when the result is available and the loop still waits for it.
        self.answered = threading.Lock()
        #: Acquired by whichever is first: the thread when it has finished, or the loop when it stops waiting.
        self.settled = threading.Lock()


class SyncingThread:
    """One thread that writes and syncs, fed through a queue. It ends with `close`.

    Blocking work does not run on the loop's thread, because any sync may be slow. For the frame of a lone caller the
    loop waits up to `_QUICK_S`: a fast disk finishes sooner than the loop could return to its sockets and be woken
    again. A loop that serves its lone caller and nothing else (`is_alone`) does the work itself, unless the disk was
    slow lately: a slow sync keeps no other caller waiting.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        is_blocking: bool = True,
        name: str = "holdfast-sync",
        is_alone: Callable[[], bool] = lambda: False,
    ) -> None:
        """Without `is_blocking` (a journal in memory), the work for a lone caller runs on the loop's thread."""
        self._loop = loop
        self._is_blocking = is_blocking
        self._is_alone = is_alone
        self._queue: SimpleQueue[_Handover | None] = SimpleQueue()
        self._wary = 0
        self._distrust = _WARY_FRAMES
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], int], done: Callable[[int | BaseException], None], *, is_lone: bool) -> None:
        """Runs the work; calls `done` on the loop's thread, for a lone caller perhaps before this returns."""
        if is_lone and not self._is_blocking:
            done(_attempted(work))
        elif is_lone and not self._wary:
            if self._is_alone():
                self._run_here(work, done)
            else:
                self._run_quickly(_Handover(work, done))
        else:
            self._wary = max(0, self._wary - 1)
            handover = _Handover(work, done)
            handover.settled.acquire()
            self._queue.put(handover)

    def _run_here(self, work: Callable[[], int], done: Callable[[int | BaseException], None]) -> None:
        begun_s = time.monotonic()
        result = _attempted(work)
        if time.monotonic() - begun_s > _QUICK_S:
            self._be_wary()
        else:
            self._distrust = _WARY_FRAMES
        done(result)

    def _be_wary(self) -> None:
        self._wary = self._distrust
        self._distrust = min(2 * self._distrust, _WARY_FRAMES_MAX)

    def _run_quickly(self, handover: _Handover) -> None:
        handover.answered.acquire()
        self._queue.put(handover)
        if not handover.answered.acquire(timeout=_QUICK_S):
            self._be_wary()
            if handover.settled.acquire(blocking=False):
                return  # the thread will schedule the call of `done`
            handover.answered.acquire()
        else:
            self._distrust = _WARY_FRAMES
        handover.done(handover.result)

    def close(self) -> None:
        """Ends the thread after its queued work."""
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (handover := self._queue.get()) is not None:
            handover.result = _attempted(handover.work)
            if handover.settled.acquire(blocking=False):
                handover.answered.release()
                continue
            try:
                self._loop.call_soon_threadsafe(handover.done, handover.result)
            except RuntimeError:  # the loop was closed, so no caller waits any more
                return


def _attempted(work: Callable[[], int]) -> int | BaseException:
    try:
        return work()
    except BaseException as error:  # noqa: BLE001 - any error must stop the coordinator
        return error
