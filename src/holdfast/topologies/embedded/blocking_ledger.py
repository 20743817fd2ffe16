"""Blocking calls to a ledger that this process serves, from other threads than the ledger's."""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Sequence
from typing import cast

from holdfast.client.link import Settled
from holdfast.core.commands import Refusal, Submitted
from holdfast.core.model import Template
from holdfast.errors import UnavailableError
from holdfast.ledger.job_api import LedgerJobs
from holdfast.ports import JobDraft

#: A waiting caller checks this often whether the loop has ended.
_LOOK_S = 1.0


class BlockingLedger:
    """`BlockingCalls` for sync callers.

    The coordinator passes its reply to the waiting thread, without a task in between.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, jobs: LedgerJobs, lost: asyncio.Event) -> None:
        self._loop = loop
        self._jobs = jobs
        self._lost = lost

    def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Submits jobs, which are durable when it returns; it needs one call into the loop, and no task."""
        answered = threading.Lock()
        answered.acquire()
        replies: list[object] = []

        def done(reply: object) -> None:
            replies.append(reply)
            answered.release()

        self._soon(self._jobs.submit_then, templates, drafts, done)
        while not answered.acquire(timeout=_LOOK_S):
            if self._lost.is_set() or not self._loop.is_running():
                raise UnavailableError("the ledger was closed before it answered", reason="CONNECTION_LOST")
        reply = replies[0]
        if isinstance(reply, Refusal):
            raise reply.error()
        return cast("Submitted", reply)

    def settled(self, job_id: str, timeout_s: float | None) -> Settled | None:
        """Returns the job and its result once it has ended; None after the timeout."""
        try:
            future = asyncio.run_coroutine_threadsafe(self._jobs.settled(job_id), self._loop)
        except RuntimeError as error:
            raise _ended() from error
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            return None
        except BaseException:
            future.cancel()
            raise

    def _soon(self, function: Callable[..., object], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args, context=contextvars.Context())
        except RuntimeError as error:
            raise _ended() from error


def _ended() -> UnavailableError:
    return UnavailableError("the ledger is closed", reason="CONNECTION_LOST")
