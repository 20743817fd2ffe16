"""Blocking calls to a ledger that this process serves, from other threads than the ledger's."""

import asyncio
import contextvars
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import cast

from holdfast.client.link import Settled
from holdfast.core.commands import Refusal, Submitted
from holdfast.core.model import Template
from holdfast.errors import HoldfastError, UnavailableError
from holdfast.ledger.job_api import LedgerJobs
from holdfast.ports import JobDraft

#: A waiting caller checks this often whether the loop has ended.
_LOOK_S = 1.0


class _Answer:
    """The reply to one call, which a thread waits for."""

    __slots__ = ("_answered", "_reply", "give_up")

    def __init__(self) -> None:
        self._answered = threading.Lock()
        self._answered.acquire()
        self._reply: object = None
        #: Ends the call on the loop's thread.
        self.give_up: Callable[[], None] = _nothing

    def done(self, reply: object) -> None:
        """Wakes the thread; called once."""
        self._reply = reply
        self._answered.release()

    def is_there(self, within_s: float) -> bool:
        """Waits for the reply."""
        return self._answered.acquire(timeout=within_s)

    @property
    def value(self) -> object:
        """The reply; raises the error or the refusal that it is."""
        if isinstance(self._reply, Refusal):
            raise self._reply.error()
        if isinstance(self._reply, HoldfastError):
            raise self._reply
        return self._reply


class BlockingLedger:
    """`BlockingCalls` for sync callers.

    The coordinator passes its reply to the waiting thread, without a task or a future in between.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, jobs: LedgerJobs, lost: asyncio.Event) -> None:
        self._loop = loop
        self._jobs = jobs
        self._lost = lost

    def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Submits jobs, which are durable when it returns."""
        answer = _Answer()
        self._soon(self._jobs.submit_then, templates, drafts, answer.done)
        self._wait(answer, None)
        return cast("Submitted", answer.value)

    def settled(self, job_id: str, timeout_s: float | None) -> Settled | None:
        """Returns the job and its result once it has ended; None after the timeout."""
        answer = _Answer()
        self._soon(self._await_end, job_id, answer)
        is_there = False
        try:
            is_there = self._wait(answer, timeout_s)
        finally:
            if not is_there:  # the timeout has passed, or the wait was interrupted
                with suppress(UnavailableError):
                    self._soon(_give_up, answer)
        return cast("Settled", answer.value) if is_there else None

    def _await_end(self, job_id: str, answer: _Answer) -> None:
        """Begins to wait for the end of the job, on the loop's thread."""
        try:
            answer.give_up = self._jobs.settled_then(job_id, answer.done)
        except HoldfastError as error:
            answer.done(error)

    def _wait(self, answer: _Answer, timeout_s: float | None) -> bool:
        """Waits for the reply; False after the timeout. Raises an error if the loop has ended."""
        end_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while not answer.is_there(_LOOK_S if timeout_s is None else max(0.0, min(_LOOK_S, end_s - time.monotonic()))):
            if time.monotonic() >= end_s:
                return False
            if self._lost.is_set() or not self._loop.is_running():
                raise UnavailableError("the ledger was closed before it answered", reason="CONNECTION_LOST")
        return True

    def _soon(self, function: Callable[..., object], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args, context=contextvars.Context())
        except RuntimeError as error:
            raise _ended() from error


def _give_up(answer: _Answer) -> None:
    """Ends the call. It runs after `_await_end`, because both run on the loop's thread, in this order."""
    answer.give_up()


def _nothing() -> None:
    """Does nothing."""


def _ended() -> UnavailableError:
    return UnavailableError("the ledger is closed", reason="CONNECTION_LOST")
