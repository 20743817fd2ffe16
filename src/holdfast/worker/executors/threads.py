"""Handlers that are ordinary functions: threads that take attempts from one deque.

Waking a thread and hearing back from it costs far more than a short job, so a thread that is awake takes one attempt
after another, and another thread is woken only while the work that waits is worth it. Outcomes are handed over
together, with one call into the loop for as many as there are when the loop gets to it.

Invariants:
- Whoever takes an attempt from the deque owns it: a thread to run it, or the loop to drop it.
- An exception is put into a thread at most once for an attempt, under the slot's lock, and only while the slot says
  that it runs that attempt. It may arrive a little late, anywhere in this file: `_live` knows what to do then.
- `awake`, `allowance` and `_parked` change on the loop alone.
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
from holdfast.worker.executors.port import Ended, Watcher
from holdfast.worker.outcomes import failed, interrupted, succeeded
from holdfast.worker.prefetch import AttemptPace

#: As much waiting work is worth one more thread.
_WORTH_A_THREAD_S = 0.01
#: How soon the number of threads is thought over again while work waits, and how often timeouts are looked at.
_WAITING_TICK_S = 0.002
_TICK_S = 0.05
#: After so many attempts in a row a thread lets the loop have the interpreter, which it would otherwise get only every
#: few milliseconds: outcomes leave and leases come while the thread works on, instead of in turn with it.
_IN_A_ROW = 256
_BREATH_S = 0.00005


class _Slot:
    """One thread, and what it is doing."""

    __slots__ = ("current", "gate", "is_written_off", "lock", "thread")

    def __init__(self) -> None:
        self.current: JobContext | None = None
        self.lock = threading.Lock()
        #: Taken while the thread may not work; the loop opens it.
        self.gate = threading.Lock()
        self.is_written_off = False
        self.thread: threading.Thread | None = None


class ThreadExecutor:
    """At most `slots` threads, made when they are needed."""

    def __init__(self, watcher: Watcher, pace: AttemptPace, *, slots: int, kill_grace_ms: int) -> None:
        self._watcher = watcher
        self._pace = pace
        self._slots_max = slots
        self._grace_s = kill_grace_ms / 1_000
        self._loop: asyncio.AbstractEventLoop | None = None
        self.queue: deque[JobContext] = deque()
        #: Threads that work, or were just told to.
        self.awake = 0
        #: How many may; one that finds too many awake goes to sleep after its attempt.
        self.allowance = slots
        self._slots: list[_Slot] = []
        self._parked: list[_Slot] = []
        self._done: deque[Ended | _Slot] = deque()
        self._is_posted = False
        self._is_closed = False
        self._timer: asyncio.Handle | None = None
        self._tick_at_s = 0.0
        #: Attempts that were told to end, and when they are written off.
        self._interrupted: dict[JobContext, float] = {}
        self._names = count(1)

    # -- the loop's side

    def start(self, context: JobContext) -> None:
        """Lets it wait; `wake` sees to it that somebody comes."""
        self.queue.append(context)

    def wake(self) -> None:
        """Wakes as many threads as the waiting work is worth, at least one, within the allowance."""
        waiting = len(self.queue)
        room = self.allowance - self.awake
        if waiting and room > 0:
            worth = int(waiting * self._pace.average_s / _WORTH_A_THREAD_S) - self.awake
            for _ in range(min(waiting, room, worth if self.awake else max(1, worth))):
                self._wake_one()
        self._keep_ticking()

    def remove(self, context: JobContext) -> bool:
        """Takes an attempt back that nobody has begun; False if somebody has."""
        try:
            self.queue.remove(context)
        except ValueError:
            return False
        return True

    def interrupt(self, context: JobContext) -> None:
        """Puts an exception into the thread that runs it; writes the thread off if that does not help."""
        self._interrupted[context] = time.monotonic() + self._grace_s
        self._inject(context)
        self._keep_ticking()

    async def close(self) -> None:
        """Lets threads end that have nothing to do; those that are stuck end with the process."""
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
        """Takes over what the threads have finished."""
        self._is_posted = False
        done = self._done
        ended: list[Ended] = []
        while done:
            item = done.popleft()
            if isinstance(item, _Slot):
                self._park(item)  # it found nothing to do
            else:
                ended.append(item)
        if self._interrupted:
            for context, _ in ended:
                self._interrupted.pop(context, None)
        self._watcher.ended(ended)

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
        """Until the next time that an attempt runs out of, but not for long."""
        now_s, soon_s = time.monotonic(), _TICK_S
        for slot in self._slots:
            context = slot.current
            if context is not None and context.assignment.timeout_ms:
                soon_s = min(soon_s, context.started_s + context.assignment.timeout_ms / 1_000 - now_s)
        return max(soon_s, 0.001)

    def _tick(self) -> None:
        """Ends what has run too long, and wakes more threads if those that are awake do not get through."""
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
        """The thread is left behind with its attempt; a new one takes its place when it is needed."""
        del self._interrupted[context]
        slot = self._slot_of(context)
        if slot is None:  # it has just ended, or not begun: its outcome is on its way
            return
        with slot.lock:
            if slot.current is not context:
                return
            slot.is_written_off = True
        self._slots.remove(slot)
        self.awake -= 1
        self._watcher.tally.written_off += 1
        get_logger().warning(
            "written_off",
            job_id=context.job_id,
            mode="thread",
            message="the thread does not end; processes can be killed, threads cannot",
        )
        self._watcher.ended([(context, interrupted(context))])

    # -- the threads' side

    def _live(self, slot: _Slot) -> None:
        while not slot.is_written_off:
            try:
                self._work(slot)
                self._rest(slot)
            except JobInterrupt:
                self._recover(slot)
            except RuntimeError:  # the loop is closed: nobody listens any more
                return
            if self._is_closed:
                return

    def _recover(self, slot: _Slot) -> None:
        """An interrupt arrived outside of the handler: the attempt has an outcome, perhaps a second one."""
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
        slot.gate.acquire(blocking=False)  # closed before the loop hears of it, so that no opening is lost
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
        """Takes attempts until there are none, or others should have the slot."""
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
                    _raise_in(slot.thread, None)  # takes back what has not arrived yet


def _outcome(context: JobContext) -> ReportRow:
    if context.interrupt is not None:
        return interrupted(context)
    CURRENT.set(context)
    try:
        return succeeded(context, context.handler.run(context.assignment))
    except BaseException as error:  # noqa: BLE001 - anything: unreported, the job would be held for ever
        return failed(context, error)


def _is_over(context: JobContext, now_s: float) -> bool:
    timeout_ms = context.assignment.timeout_ms
    return bool(timeout_ms) and context.interrupt is None and now_s >= context.started_s + timeout_ms / 1_000


def _raise_in(thread: threading.Thread | None, error: type[BaseException] | None) -> None:
    """Asks the interpreter to raise an exception in a thread, or no longer to."""
    assert thread is not None
    assert thread.ident is not None
    argument = ctypes.py_object(error) if error is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), argument)
