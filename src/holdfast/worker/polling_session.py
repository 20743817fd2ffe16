"""The base of sessions with backends that have no event stream: pending changes, lease expiry, background tasks.

Invariants:
- The worker receives every change once, as a `Directive`, in order. A failure ends the session for all later calls.
- A lease that is not extended in time is revoked here, whether or not the backend can be reached. If the worker has not
  received it by then, the session requests another lease in its place.
- A task that ends with an error ends the session, also if the error is a bug.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Coroutine, Sequence
from typing import Any

from holdfast.core.capabilities import Capabilities
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import TERMINAL
from holdfast.core.model import Note
from holdfast.errors import HoldfastError, InvalidArgumentError, UnavailableError
from holdfast.observe.logs import get_logger
from holdfast.ports import Directive
from holdfast.worker.held_leases import HeldLeases, PendingDirective, UnacknowledgedReports


class PollingSession(ABC):
    """The part of a session that does not depend on where leases come from."""

    #: The service that calls go to, as named in log events.
    _other = "coordinator"

    def __init__(self, worker_id: str, capabilities: Capabilities) -> None:
        """Begins without leases. The first directive carries the backend's `capabilities` to the worker."""
        self._worker = worker_id
        self._log = get_logger().bind(worker_id=worker_id)
        self._loop = asyncio.get_running_loop()
        self._held_leases = HeldLeases()
        self._pending = PendingDirective(capabilities=capabilities)
        self._heard = asyncio.Event()
        self._reports = UnacknowledgedReports()
        #: Kinds of calls that currently fail. Other kinds may succeed if only a service behind the called one is down.
        self._silent: set[str] = set()
        self._is_draining = False
        self._failure: HoldfastError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # -- called by the worker

    async def next(self) -> Directive:
        """Returns all changes since the last directive; waits until there is one."""
        while True:
            if self._pending.is_any and self._may_tell():
                news, self._pending = self._pending, PendingDirective()
                directive = news.directive()
                self._held_leases.deliver(lease.token for lease in directive.leases)
                unheard = len(news.leases) - len(directive.leases)
                if unheard and self._failure is None:
                    await self.want(unheard)
                return directive
            self._refuse_if_over()
            self._heard.clear()
            await self._heard.wait()

    @abstractmethod
    async def want(self, count: int) -> None:
        """Requests this many more leases."""

    async def note(self, notes: Sequence[Note]) -> None:
        """Drops the notes: no backend with sessions of this kind has `Capability.NOTES`."""
        self._refuse_if_over()

    def _may_tell(self) -> bool:
        """Whether pending changes are delivered; otherwise `next` only raises the failure."""
        return self._failure is None

    def _begin_report(self, report_id: int, rows: Sequence[ReportRow]) -> None:
        """Refuses rows that are not outcomes, and registers the number of rows that the backend has to answer."""
        self._refuse_if_over()
        for row in rows:
            if row.state not in TERMINAL:
                message = f"the state of an outcome must be DONE, FAILED or CANCELED, got {row.state}"
                raise InvalidArgumentError(message, reason="OUTCOME_INVALID")
        self._reports.begin(report_id, len(rows))
        if not rows:
            self._acknowledge(report_id, 0)

    def _acknowledge(self, report_id: int, rows: int) -> None:
        self._pending.reported = max(self._pending.reported, self._reports.answered(report_id, rows))
        if self._pending.reported:
            self._heard.set()

    # -- lease expiry

    def _revoke(self, tokens: Collection[int]) -> list[int]:
        """Revokes leases, and returns the tokens of those that were held."""
        gone = self._held_leases.drop(tokens)
        if gone:
            self._pending.revoked += gone
            self._heard.set()
        return gone

    def _watch_time(self) -> None:
        """Starts the timer for the next lease that expires."""
        next_s = self._held_leases.next_s()
        if self._timer is None and next_s is not None:
            self._timer = self._loop.call_later(max(0.0, next_s - time.monotonic()), self._look_at_time)

    def _look_at_time(self) -> None:
        self._timer = None
        self._give_up(self._held_leases.expired(time.monotonic()))
        self._watch_time()

    def _give_up(self, expired: Collection[int]) -> None:
        """Revokes expired leases."""
        if expired:
            self._log.warning(
                "leases_over", leases=len(expired), message="no heartbeat was answered before they expired"
            )
            self._revoke(expired)

    def _miss(self, call: str, error: HoldfastError) -> None:
        """Logs a failed call once, until every kind of call succeeds again."""
        if not self._silent:
            self._log.warning(f"{self._other}_silent", call=call, message=error.message)
        self._silent.add(call)

    def _hit(self, call: str) -> None:
        if call in self._silent:
            self._silent.remove(call)
            if not self._silent:
                self._log.info(f"{self._other}_answers")

    # -- ending

    def _end(self, error: HoldfastError) -> None:
        self._failure = self._failure or error
        self._heard.set()

    def _refuse_if_over(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _spawn(self, steps: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(steps)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            if not isinstance(error, HoldfastError):
                self._log.error("bug", exc_info=error)
                error = UnavailableError("the session failed; see the worker's log", reason="SESSION_BROKEN")
            self._end(error)
