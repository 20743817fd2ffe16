"""Runs handlers that are ordinary functions, in threads that take attempts from one deque.

Waking a thread and receiving its outcome costs far more than a short job. So a thread that is awake takes one attempt
after another, and another thread is woken only if enough work waits. Outcomes are handed over in batches: one call into
the loop collects all outcomes that exist when the loop runs it.

Invariants:
- The side that takes an attempt from the deque owns it: a thread to run it, or the loop to drop it.
- An exception is injected into a thread at most once per attempt, under the slot's lock, and only while the slot runs
  that attempt. It may be raised a little later, anywhere in this file; `_live` handles that case.
- Only the loop changes `awake`, `allowance` and `_parked`.
"""

import asyncio
import ctypes
import threading
import time
from collections import deque
from itertools import count

from holdfast.core.commands import ReportRow
from holdfast.observe.logs import get_logger
from holdfast.worker.context import CURRENT, JobContext, JobInterrupt, TimeoutInterrupt
from holdfast.worker.executors.port import Ended, ExecutorCallbacks
from holdfast.worker.outcomes import failed, interrupted, succeeded
from holdfast.worker.prefetch import AttemptPace

#: One more thread is woken for this much waiting work.
_WORTH_A_THREAD_S = 0.01
#: Interval of the tick while work waits (to wake more threads), and otherwise (to check timeouts).
_WAITING_TICK_S = 0.002
_TICK_S = 0.05
#: After this many attempts in a row a thread sleeps briefly, so that the loop gets the interpreter; otherwise the loop
#: gets it only every few milliseconds. So outcomes are sent and leases arrive while the thread works.
_IN_A_ROW = 256
_BREATH_S = 0.00005


class _Slot:
    """One thread and its current attempt."""

    __slots__ = ("current", "gate", "is_written_off", "lock", "thread")

    def __init__(self) -> None:
        self.current: JobContext | None = None
        self.lock = threading.Lock()
        #: Held while the thread is parked; the loop releases it to wake the thread.
        self.gate = threading.Lock()
        self.is_written_off = False
        self.thread: threading.Thread | None = None


class ThreadExecutor:
    """At most `slots` threads, created when they are needed."""

    def __init__(self, callbacks: ExecutorCallbacks, pace: AttemptPace, *, slots: int, kill_grace_ms: int) -> None:
        self._callbacks = callbacks
        self._pace = pace
        self._slots_max = slots
        self._grace_s = kill_grace_ms / 1_000
        self._loop: asyncio.AbstractEventLoop | None = None
        self.queue: deque[JobContext] = deque()
        #: Number of threads that work or were just woken.
        self.awake = 0
        #: The limit for `awake`; a thread that finds it exceeded parks after its attempt.
        self.allowance = slots
        self._slots: list[_Slot] = []
        self._parked: list[_Slot] = []
        self._done: deque[Ended | _Slot] = deque()
        self._is_posted = False
        self._is_closed = False
        self._timer: asyncio.Handle | None = None
        self._tick_at_s = 0.0
        #: Interrupted attempts, each with the time when it is written off.
        self._interrupted: dict[JobContext, float] = {}
        self._names = count(1)

    # -- called on the loop

    def start(self, context: JobContext) -> None:
        """Queues the attempt; `wake` wakes a thread for it."""
        self.queue.append(context)

    def wake(self) -> None:
        """Wakes threads for the waiting work within the allowance; at least one if none is awake."""
        waiting = len(self.queue)
        room = self.allowance - self.awake
        if waiting and room > 0:
            worth = int(waiting * self._pace.average_s / _WORTH_A_THREAD_S) - self.awake
            for _ in range(min(waiting, room, worth if self.awake else max(1, worth))):
                self._wake_one()
        self._keep_ticking()

    def remove(self, context: JobContext) -> bool:
        """Removes an attempt that has not begun; False if a thread has taken it."""
        try:
            self.queue.remove(context)
        except ValueError:
            return False
        return True

    def interrupt(self, context: JobContext) -> None:
        """Injects an exception into the thread of the attempt; a thread that does not end it in time is written off."""
        self._interrupted[context] = time.monotonic() + self._grace_s
        self._inject(context)
        self._keep_ticking()

    async def close(self) -> None:
        """Ends parked threads; threads that are stuck end with the process."""
        self._is_closed = True
        self._drop_timer()
        self.queue.clear()
        for slot in self._parked:
            slot.gate.release()
        self._parked.clear()

    def _wake_one(self) -> None:
        self.awake += 1
        if self._parked:
            self._parked.pop().gate.release()
            return
        slot = _Slot()
        self._slots.append(slot)
        self._loop = self._loop or asyncio.get_running_loop()
        name = f"holdfast-slot-{next(self._names)}"
        slot.thread = threading.Thread(target=self._live, args=(slot,), name=name, daemon=True)
        slot.thread.start()

    def _collect(self) -> None:
        """Collects outcomes and idle slots from the threads."""
        self._is_posted = False
        done = self._done
        ended: list[Ended] = []
        while done:
            item = done.popleft()
            if isinstance(item, _Slot):
                self._park(item)
            else:
                ended.append(item)
        if self._interrupted:
            for context, _ in ended:
                self._interrupted.pop(context, None)
        self._callbacks.ended(ended)

    def _park(self, slot: _Slot) -> None:
        if not slot.is_written_off:
            self.awake -= 1
            self._parked.append(slot)

    def _keep_ticking(self) -> None:
        if not self.awake or self._is_closed:
            return
        delay_s = _WAITING_TICK_S if self.queue and self.awake < self.allowance else self._tick_s()
        loop = asyncio.get_running_loop()
        at_s = loop.time() + delay_s
        if self._timer is None or self._tick_at_s > at_s + _WAITING_TICK_S:
            self._drop_timer()
            self._timer, self._tick_at_s = loop.call_at(at_s, self._tick), at_s

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick_s(self) -> float:
        """Seconds until the next attempt times out, at most `_TICK_S`."""
        now_s, soon_s = time.monotonic(), _TICK_S
        for slot in self._slots:
            context = slot.current
            if context is not None and context.assignment.timeout_ms:
                soon_s = min(soon_s, context.started_s + context.assignment.timeout_ms / 1_000 - now_s)
        return max(soon_s, 0.001)

    def _tick(self) -> None:
        """Interrupts attempts that timed out, writes off those that do not end, and wakes threads for waiting work."""
        self._timer = None
        now_s = time.monotonic()
        for slot in list(self._slots):
            context = slot.current
            if context is not None and _is_over(context, now_s):
                context.interrupt = TimeoutInterrupt
                self.interrupt(context)
        for context, end_s in list(self._interrupted.items()):
            self._inject(context)
            if now_s >= end_s:
                self._write_off(context)
        more = min(len(self.queue), self.allowance - self.awake, self.awake)
        for _ in range(more):
            self._wake_one()
        self._keep_ticking()

    def _slot_of(self, context: JobContext) -> _Slot | None:
        return next((slot for slot in self._slots if slot.current is context), None)

    def _inject(self, context: JobContext) -> None:
        slot = self._slot_of(context)
        if slot is None or context.is_injected:
            return
        with slot.lock:
            if slot.current is context and context.interrupt is not None:
                context.is_injected = True
                _raise_in(slot.thread, context.interrupt)

    def _write_off(self, context: JobContext) -> None:
        """Abandons the thread with its attempt; a new thread replaces it when one is needed."""
        del self._interrupted[context]
        slot = self._slot_of(context)
        if slot is None:  # the attempt has just ended, or has not begun: its outcome will follow
            return
        with slot.lock:
            if slot.current is not context:
                return
            slot.is_written_off = True
        self._slots.remove(slot)
        self.awake -= 1
        self._callbacks.tally.written_off += 1
        get_logger().warning(
            "written_off",
            job_id=context.job_id,
            mode="thread",
            message="the thread ignored its interrupt and cannot be killed; use isolation='process' for this job",
        )
        self._callbacks.ended([(context, interrupted(context))])

    # -- called on the threads

    def _live(self, slot: _Slot) -> None:
        while not slot.is_written_off:
            try:
                self._work(slot)
                self._rest(slot)
            except JobInterrupt:
                self._recover(slot)
            except RuntimeError:  # the loop is closed
                return
            if self._is_closed:
                return

    def _recover(self, slot: _Slot) -> None:
        """Handles an interrupt outside of the handler: the attempt gets an outcome, perhaps for the second time."""
        context = slot.current
        if context is not None:
            self._done.append((context, interrupted(context)))
            slot.current = None
        self._is_posted = True
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._collect)

    def _rest(self, slot: _Slot) -> None:
        if slot.is_written_off:
            return
        slot.gate.acquire(blocking=False)  # before the loop sees the slot, so that no release is lost
        self._done.append(slot)
        self._post()
        slot.gate.acquire()
        slot.gate.release()

    def _post(self) -> None:
        if not self._is_posted:
            self._is_posted = True
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._collect)

    def _work(self, slot: _Slot) -> None:
        """Runs attempts until none waits or too many threads are awake."""
        queue, done = self.queue, self._done
        taken = 0
        while self.awake <= self.allowance and not slot.is_written_off:
            try:
                context = queue.popleft()
            except IndexError:
                return
            taken += 1
            if not taken % _IN_A_ROW:
                time.sleep(_BREATH_S)
            context.started_s = time.monotonic()
            slot.current = context
            done.append((context, _outcome(context)))
            if not self._is_posted:
                self._post()
            with slot.lock:
                slot.current = None
                if context.is_injected:
                    _raise_in(slot.thread, None)  # clears an exception that was not raised yet


def _outcome(context: JobContext) -> ReportRow:
    if context.interrupt is not None:
        return interrupted(context)
    CURRENT.set(context)
    try:
        return succeeded(context, context.handler.run(context.assignment))
    except BaseException as error:  # noqa: BLE001 - without a report, the worker would keep the lease for ever
        return failed(context, error)


def _is_over(context: JobContext, now_s: float) -> bool:
    timeout_ms = context.assignment.timeout_ms
    return bool(timeout_ms) and context.interrupt is None and now_s >= context.started_s + timeout_ms / 1_000


def _raise_in(thread: threading.Thread | None, error: type[BaseException] | None) -> None:
    """Has the interpreter raise an exception in a thread; None clears one that is pending."""
    assert thread is not None
    assert thread.ident is not None
    argument = ctypes.py_object(error) if error is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), argument)
