"""The slots of a worker and its backlog: starts attempts, queues those without a slot, and drops those to hand back.

Invariants:
- At most `slots` attempts run at a time, across all modes.
- An attempt is known by its token from the arrival of its lease until it has ended or was dropped.
- Waiting attempts start in order of arrival, as far as two deques (one for threads, one for other modes) allow.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

import msgspec

from holdfast.core.lifecycle import CANCELED, FAILED
from holdfast.core.model import SIM_TYPE
from holdfast.errors import InvalidArgumentError
from holdfast.ports import Assignment
from holdfast.worker.attempt_spans import AttemptSpans
from holdfast.worker.config import WorkerConfig
from holdfast.worker.context import CancelInterrupt, JobContext
from holdfast.worker.executors.asyncio_tasks import TaskExecutor
from holdfast.worker.executors.port import AttemptTally, Ended, Executor, ExecutorCallbacks
from holdfast.worker.executors.processes import ProcessConfig, ProcessExecutor
from holdfast.worker.executors.threads import ThreadExecutor
from holdfast.worker.handlers import AttemptFailedError, Handler, Mode
from holdfast.worker.outcomes import interrupted
from holdfast.worker.prefetch import AttemptPace


class Slots:
    """Runs leases. Calls `ended` with every attempt that has ended, and `noted` with every attempt that has a note."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        config: WorkerConfig,
        ended: Callable[[list[Ended]], None],
        noted: Callable[[JobContext], object],
        spans: AttemptSpans | None = None,
    ) -> None:
        isolated = {name: _isolated(handler, config) for name, handler in handlers.items()}
        self._handlers = isolated if spans is None else spans.around_all(isolated)
        self._no_handler = _NO_HANDLER if spans is None else spans.around(_NO_HANDLER)
        self._spans = spans
        self._config = config
        self._told = ended
        self._noted = noted
        self.pace = AttemptPace()
        self.tally = AttemptTally()
        #: Number of attempts that ran in this process, not in a child.
        self.ended_here = 0
        #: Attempts that have arrived and not ended, by token.
        self.contexts: dict[int, JobContext] = {}
        self._waiting: deque[JobContext] = deque()
        callbacks = ExecutorCallbacks(self._ended, self.tally)
        self.tasks = TaskExecutor(callbacks, kill_grace_ms=config.kill_grace_ms)
        self.threads = ThreadExecutor(callbacks, self.pace, slots=config.slots, kill_grace_ms=config.kill_grace_ms)
        self.processes = ProcessExecutor(callbacks, _process_config(config), None if spans is None else spans.sent)
        self._executors: dict[Mode, Executor] = {
            Mode.THREAD: self.threads,
            Mode.PROCESS: self.processes,
            Mode.ASYNC: self.tasks,
        }

    @property
    def types(self) -> frozenset[str]:
        """The job types that this worker can run."""
        return frozenset(self._handlers)

    @property
    def waiting(self) -> int:
        """The number of attempts that wait for a slot and do not run in a thread."""
        return len(self._waiting)

    @property
    def backlog(self) -> int:
        """The number of attempts that wait for a slot."""
        return len(self._waiting) + len(self.threads.queue)

    def take(self, leases: Iterable[Assignment]) -> None:
        """Starts each lease as soon as a slot is free."""
        now_s = time.monotonic()
        handlers, contexts, queue, noted = self._handlers, self.contexts, self.threads.queue, self._noted
        for assignment in leases:
            handler = handlers.get(assignment.type) or self._stand_in(assignment)
            context = contexts[assignment.token] = JobContext(assignment, handler, now_s, noted)
            if handler.mode is Mode.THREAD:
                queue.append(context)
            else:
                self._waiting.append(context)
        self._pump()

    def interrupt(self, context: JobContext) -> None:
        """Ends an attempt because of a cancel request or a lost lease."""
        if context.interrupt is not None:
            return
        context.interrupt = CancelInterrupt
        if self._is_dropped(context):
            self._ended([(context, interrupted(context))])
        else:
            self._executors[context.handler.mode].interrupt(context)

    def drop_backlog(self, before_s: float = float("inf")) -> list[JobContext]:
        """Removes and returns the attempts that arrived before this time and still wait for a slot."""
        dropped: list[JobContext] = []
        for line in (self._waiting, self.threads.queue):
            dropped += _arrived_before(line, before_s)
        for context in dropped:
            self.contexts.pop(context.token, None)
        self.tally.released += len(dropped)
        return dropped

    async def close(self) -> None:
        """Drops the waiting attempts and closes the executors."""
        self._waiting.clear()
        for executor in self._executors.values():
            await executor.close()
        if self._spans is not None:
            self._spans.close()

    def _stand_in(self, assignment: Assignment) -> Handler:
        sim = self._handlers.get(SIM_TYPE) if assignment.simulated else None
        return sim or self._no_handler

    def _is_dropped(self, context: JobContext) -> bool:
        if context.handler.mode is Mode.THREAD:
            return self.threads.remove(context)
        try:
            self._waiting.remove(context)
        except ValueError:
            return False
        return True

    def _ended(self, ended: list[Ended]) -> None:
        """Records attempts that have ended, and ignores those that were recorded before."""
        contexts = self.contexts
        known: list[Ended] = []
        run, run_s = 0, 0.0
        for pair in ended:
            context, row = pair
            if contexts.pop(row.token, None) is None:
                continue
            known.append(pair)
            if context.ended_s:
                run += 1
                run_s += context.ended_s - context.started_s
            if context.interrupt is not None:
                self.tally.cancels += row.state == CANCELED
                self.tally.timeouts += row.state == FAILED
        if run:
            self.pace.learn(run_s, run, time.monotonic())
        if known:
            self.tally.ended += len(known)
            self.ended_here += sum(context.handler.mode is not Mode.PROCESS for context, _ in known)
            self._told(known)
            if self._spans is not None:
                self._spans.ended(known)
        self._pump()

    def _pump(self) -> None:
        """Fills free slots."""
        if self._waiting and self._is_waiting_first():
            self._start_waiting()
        others = self.tasks.running + self.processes.running
        # A thread keeps its slot while work waits for it. If an earlier arrival of another mode waits, one thread must
        # give its slot up.
        self.threads.allowance = self._config.slots - others - (bool(self._waiting) and self._is_waiting_first())
        self.threads.wake()
        self._start_waiting()

    def _is_waiting_first(self) -> bool:
        try:
            return self._waiting[0].arrived_s <= self.threads.queue[0].arrived_s
        except IndexError:  # a thread has just taken the last one
            return True

    def _start_waiting(self) -> None:
        waiting, slots = self._waiting, self._config.slots
        while waiting and self.tasks.running + self.processes.running + self.threads.awake < slots:
            context = waiting.popleft()
            self._executors[context.handler.mode].start(context)


def _arrived_before(line: deque[JobContext], before_s: float) -> list[JobContext]:
    """Removes the oldest attempts, each in one atomic step, because threads take from the same deque."""
    taken: list[JobContext] = []
    try:
        while line[0].arrived_s < before_s:
            context = line.popleft()
            taken.append(context)
    except IndexError:
        pass
    return taken


async def _no_handler(_: Assignment) -> bytes:
    raise AttemptFailedError("NO_HANDLER", is_retryable=False)


_NO_HANDLER = Handler(_no_handler, Mode.ASYNC)


def _isolated(handler: Handler, config: WorkerConfig) -> Handler:
    """Returns the handler in the mode that this worker is configured for; coroutines stay on the loop."""
    mode = handler.mode
    if mode is not Mode.ASYNC and config.isolation is not None:
        mode = config.isolation
    if mode is Mode.PROCESS and not config.app_path:
        raise InvalidArgumentError(
            "jobs that run in processes need an app that a child process can import;"
            " use `holdfast worker -A module:app` or app.worker(app_path='module:app')",
            reason="APP_MISSING",
        )
    return msgspec.structs.replace(handler, mode=mode)


def _process_config(config: WorkerConfig) -> ProcessConfig:
    return ProcessConfig(
        app_path=config.app_path,
        memory_bytes=config.child_memory_bytes,
        max_jobs=config.max_jobs,
        max_memory_bytes=config.max_memory_bytes,
        kill_grace_ms=config.kill_grace_ms,
    )
