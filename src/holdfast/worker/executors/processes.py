"""Runs handlers that need isolation, in children that run one attempt at a time, are reused, and can be killed."""

import asyncio
import signal
import time
from collections.abc import Callable

import msgspec

from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import DONE
from holdfast.core.trace_context import TraceContext
from holdfast.observe.logs import get_logger
from holdfast.worker.context import JobContext, TimeoutInterrupt
from holdfast.worker.executors.child_process import ChildProcess, how_it_ended
from holdfast.worker.executors.frames import FromChild, Interrupt, Leave, NoteMessage, OutcomeMessage, Ready, Run
from holdfast.worker.executors.port import ExecutorCallbacks
from holdfast.worker.outcomes import failure, interrupted

#: Time limit for loading the app; a child that takes longer is killed.
_START_S = 60.0


class ProcessConfig(msgspec.Struct, frozen=True):
    """The app that children load, their memory limit, and when they are replaced."""

    app_path: str
    memory_bytes: int
    max_jobs: int
    max_memory_bytes: int
    kill_grace_ms: int


class _Member:
    """A child and its current attempt."""

    def __init__(self, config: ProcessConfig) -> None:
        self.process = ChildProcess(config.app_path, config.memory_bytes)
        self.context: JobContext | None = None
        self.jobs = 0
        self.is_ready = False
        #: Whether the child gets no more attempts.
        self.is_leaving = False
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None

    def set_timer(self, delay_s: float | None, act: Callable[["_Member"], None]) -> None:
        """Replaces the child's only timer; None: no timer."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = asyncio.get_running_loop().call_later(delay_s, act, self) if delay_s is not None else None


class ProcessExecutor:
    """Runs each attempt in an idle child, or in a new one if none is idle."""

    def __init__(
        self,
        callbacks: ExecutorCallbacks,
        config: ProcessConfig,
        trace: Callable[[JobContext], TraceContext | None] | None = None,
    ) -> None:
        """`trace` is called for every attempt that is sent to a child; it returns the span's context for the child."""
        self._callbacks = callbacks
        self._config = config
        self._trace = trace
        self._idle: list[_Member] = []
        self._busy: dict[JobContext, _Member] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._members: set[_Member] = set()
        self._is_closed = False
        self._log = get_logger()

    @property
    def running(self) -> int:
        """The number of attempts that occupy a slot."""
        return len(self._busy)

    @property
    def pids(self) -> list[int]:
        """The process ids of all living children."""
        return [member.process.pid for member in self._members]

    def start(self, context: JobContext) -> None:
        """Gives the attempt to an idle child, or to a new one."""
        member = self._idle.pop() if self._idle else self._spawn()
        self._busy[context] = member
        member.context = context
        if member.is_ready:
            self._send(member)

    def interrupt(self, context: JobContext) -> None:
        """Sends SIGTERM to the child, and SIGKILL after the grace period."""
        member = self._busy.get(context)
        if member is None:
            return
        if not member.is_ready:  # the attempt has not begun, so the child can run the next one
            member.context = None
            self._idle.append(member)
            self._end(context, interrupted(context))
            return
        member.is_leaving = True
        member.process.send(Interrupt(context.interrupt is TimeoutInterrupt))
        member.process.signal(signal.SIGTERM)
        member.set_timer(self._config.kill_grace_ms / 1_000, _kill)

    async def close(self) -> None:
        """Kills every child, and waits for the end of all."""
        self._is_closed = True
        for member in self._members:
            member.process.signal(signal.SIGKILL)
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- one child

    def _spawn(self) -> _Member:
        member = _Member(self._config)
        self._members.add(member)
        task = asyncio.get_running_loop().create_task(self._live(member))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return member

    async def _live(self, member: _Member) -> None:
        """Runs one child from its start until it is reaped."""
        try:
            await member.process.start()
        except OSError as error:
            self._died(member, f"no process could be started: {error}")
            return
        member.set_timer(_START_S, _kill)
        while (message := await member.process.receive()) is not None:
            self._hear(member, message)
        self._died(member, how_it_ended(await member.process.end()))

    def _hear(self, member: _Member, message: FromChild) -> None:
        if isinstance(message, Ready):
            self._on_ready(member)
            return
        context, about = member.context, message.note if isinstance(message, NoteMessage) else message.row
        if context is None or (about.job_id, about.token) != (context.job_id, context.token):
            return  # a process that job code forked may report on an earlier attempt
        if isinstance(message, NoteMessage):
            context.add_note(message.note)
        else:
            self._on_over(member, context, message)

    def _on_ready(self, member: _Member) -> None:
        member.is_ready = True
        member.set_timer(None, _kill)
        if member.context is not None:
            self._send(member)

    def _send(self, member: _Member) -> None:
        context = member.context
        assert context is not None
        context.started_s = time.monotonic()
        member.jobs += 1
        member.process.send(Run(context.assignment, self._trace and self._trace(context)))
        timeout_ms = context.assignment.timeout_ms
        member.set_timer(timeout_ms / 1_000 if timeout_ms else None, self._expire)

    def _expire(self, member: _Member) -> None:
        if member.context is not None:
            member.context.interrupt = TimeoutInterrupt
            self.interrupt(member.context)

    def _on_over(self, member: _Member, context: JobContext, over: OutcomeMessage) -> None:
        member.context = None
        context.ended_s = time.monotonic()
        is_cut = context.interrupt is not None and over.row.state != DONE
        self._release(member, over.resident_bytes)
        self._end(context, interrupted(context) if is_cut else over.row)

    def _release(self, member: _Member, resident_bytes: int) -> None:
        """Makes the child idle, or lets it exit if it was interrupted, has run enough jobs or uses too much memory."""
        config = self._config
        is_old = bool(config.max_jobs) and member.jobs >= config.max_jobs
        is_large = bool(config.max_memory_bytes) and resident_bytes > config.max_memory_bytes
        if not (is_old or is_large or member.is_leaving):
            member.set_timer(None, _kill)
            self._idle.append(member)
            return
        self._callbacks.tally.children_recycled += not member.is_leaving
        member.is_leaving = True
        member.process.send(Leave())
        member.set_timer(config.kill_grace_ms / 1_000, _kill)

    def _died(self, member: _Member, how: str) -> None:
        member.set_timer(None, _kill)
        self._members.discard(member)
        if member in self._idle:
            self._idle.remove(member)
        context = member.context
        if context is None or self._is_closed:
            return
        if context.interrupt is not None:
            self._end(context, interrupted(context))
            return
        self._callbacks.tally.children_died += 1
        self._log.warning("child_died", job_id=context.job_id, type=context.type, message=how)
        self._end(context, failure(context, f"PROCESS_DIED: {how}"))

    def _end(self, context: JobContext, row: ReportRow) -> None:
        if self._busy.pop(context, None) is not None:
            self._callbacks.ended([(context, row)])


def _kill(member: _Member) -> None:
    member.process.signal(signal.SIGKILL)
