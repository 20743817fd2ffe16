"""What the sessions of backends without a stream have in common: news for the holder, leases by its own clock, tasks.

Invariants:
- The holder hears everything once, in the order of `Directive`s; a failure ends the session for whatever it calls next.
- A lease that nobody has extended in its time is revoked here, whether or not anybody can be reached. If its holder has
  not heard of it by then, the room that it was given for is wanted still.
- A task that ends with an error ends the session; a bug is one, too.
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
from holdfast.worker.held_leases import Acknowledging, Holding, News


class KeptSession(ABC):
    """The part of a session that does not depend on where leases come from."""

    #: Whom calls go to, as the log names it.
    _other = "coordinator"

    def __init__(self, worker_id: str, capabilities: Capabilities) -> None:
        """`capabilities` are those of the backend; the first directive tells them to the worker."""
        self._worker = worker_id
        self._log = get_logger().bind(worker_id=worker_id)
        self._loop = asyncio.get_running_loop()
        self._holding = Holding()
        self._news = News(capabilities=capabilities)
        self._heard = asyncio.Event()
        self._reports = Acknowledging()
        #: Kinds of calls that are not answered; others may be, while somebody behind the other one is away.
        self._silent: set[str] = set()
        self._is_draining = False
        self._failure: HoldfastError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # -- what the holder does

    async def next(self) -> Directive:
        """All that has come since the last one; waits if that is nothing."""
        while True:
            if self._news.is_any and self._may_tell():
                news, self._news = self._news, News()
                directive = news.directive()
                self._holding.deliver(lease.token for lease in directive.leases)
                unheard = len(news.leases) - len(directive.leases)
                if unheard and self._failure is None:
                    await self.want(unheard)
                return directive
            self._refuse_if_over()
            self._heard.clear()
            await self._heard.wait()

    @abstractmethod
    async def want(self, count: int) -> None:
        """More room."""

    async def note(self, notes: Sequence[Note]) -> None:
        """Drops them: no backend with sessions of this kind has `Capability.NOTES`."""
        self._refuse_if_over()

    def _may_tell(self) -> bool:
        """Whether what there is to say is said; otherwise only that it is over."""
        return self._failure is None

    def _begin_report(self, report_id: int, rows: Sequence[ReportRow]) -> None:
        """Refuses what is no outcome, and counts the rows that are to be answered."""
        self._refuse_if_over()
        for row in rows:
            if row.state not in TERMINAL:
                message = f"expected an outcome to be DONE, FAILED or CANCELED, got {row.state}"
                raise InvalidArgumentError(message, reason="OUTCOME_INVALID")
        self._reports.begin(report_id, len(rows))
        if not rows:
            self._acknowledge(report_id, 0)

    def _acknowledge(self, report_id: int, rows: int) -> None:
        self._news.reported = max(self._news.reported, self._reports.answered(report_id, rows))
        if self._news.reported:
            self._heard.set()

    # -- keeping time

    def _revoke(self, tokens: Collection[int]) -> list[int]:
        """Those of them that were held."""
        gone = self._holding.drop(tokens)
        if gone:
            self._news.revoked += gone
            self._heard.set()
        return gone

    def _watch_time(self) -> None:
        """Sees to it that what runs out is noticed."""
        next_s = self._holding.next_s()
        if self._timer is None and next_s is not None:
            self._timer = self._loop.call_later(max(0.0, next_s - time.monotonic()), self._look_at_time)

    def _look_at_time(self) -> None:
        self._timer = None
        self._give_up(self._holding.expired(time.monotonic()))
        self._watch_time()

    def _give_up(self, expired: Collection[int]) -> None:
        """What nobody may act on any more."""
        if expired:
            self._log.warning("leases_over", leases=len(expired), message="no heartbeat was answered in their time")
            self._revoke(expired)

    def _miss(self, call: str, error: HoldfastError) -> None:
        """Said once, until every kind of call is answered again."""
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
                error = UnavailableError("the session broke; the worker's log says why", reason="SESSION_BROKEN")
            self._end(error)
