"""The load balancer: which scheduler is asked, and who is asked next when that one does not answer.

Every scheduler is asked for its health once an interval; those that are well are asked in turn. Invariants: a call that
was not delivered goes to the next one at once, one that may have been goes on only where doing it twice is as good as
once; nobody waits for a scheduler that was found to be away; every call has a deadline, and where nobody is well that
is said at once, with a hint when to try again.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from functools import partial
from typing import Protocol, TypeVar

import msgspec

from holdfast.errors import HoldfastError, UnavailableError
from holdfast.observe.logs import get_logger
from holdfast.topologies.pipeline.backend.http_client import LATE, NotDeliveredError
from holdfast.topologies.pipeline.backend.port_rpc import PortMethod
from holdfast.topologies.pipeline.backend.role_loops import going_on

T = TypeVar("T")

HEALTH_PATH = "/health"
#: A scheduler that is busy may be slow to say that it is well: so many intervals, and at least so long.
_HEALTH_DEADLINES, _HEALTH_S_MIN = 2, 1.0
#: When somebody who was refused may try again.
RETRY_AFTER_S = "1"


class SchedulerCalls(Protocol):
    """What is needed of `http.Lines`."""

    async def ask(self, address: str, path: str, *, deadline_s: float) -> object:
        """A GET."""
        ...

    async def carry(self, address: str, path: str, body: bytes, *, deadline_s: float) -> bytes:
        """A POST."""
        ...


class SchedulerView(msgspec.Struct, frozen=True):
    """One scheduler, as the balancer sees it."""

    address: str
    is_well: bool
    #: Why it is not.
    trouble: str = ""


class _Scheduler:
    """One scheduler; `away` is set as long as it is not well."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.trouble = "not asked yet"
        self.away = asyncio.Event()
        self.away.set()

    @property
    def is_well(self) -> bool:
        return not self.away.is_set()

    def find_well(self) -> None:
        if not self.is_well:
            get_logger().info("scheduler_taken_in", scheduler=self.address)
        self.trouble = ""
        self.away.clear()

    def leave_out(self, error: HoldfastError) -> None:
        if self.is_well:
            get_logger().warning("scheduler_left_out", scheduler=self.address, message=error.message)
        self.trouble = error.message
        self.away.set()


class Balancer:
    """Round robin over the schedulers that are well. `start`, then `close`."""

    def __init__(self, schedulers: Sequence[str], line: SchedulerCalls, interval_s: float = 1.0) -> None:
        self._schedulers = [_Scheduler(address) for address in schedulers]
        self._line = line
        self._interval_s = interval_s
        self._turn = 0
        self._checking: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Asks everybody once, and from then on every interval."""
        await asyncio.gather(*map(self._check, self._schedulers))
        self._checking = [asyncio.create_task(going_on(partial(self._keep_checking, one))) for one in self._schedulers]

    async def close(self) -> None:
        """Asks nobody any more; the line is not closed."""
        for task in self._checking:
            task.cancel()
        await asyncio.gather(*self._checking, return_exceptions=True)

    @property
    def schedulers(self) -> list[SchedulerView]:
        """Who is well, and what is wrong with the others."""
        return [SchedulerView(one.address, one.is_well, one.trouble) for one in self._schedulers]

    async def call(
        self, method: PortMethod, body: bytes, *, is_repeatable: bool | None = None, wait_s: float = 0
    ) -> bytes:
        """The answer of one scheduler; `wait_s` is how long it may wait for something before it answers."""
        ends = time.monotonic() + method.timeout_s + wait_s
        may_repeat = method.is_repeatable if is_repeatable is None else is_repeatable
        error: HoldfastError | None = None
        refused: set[str] = set()
        for scheduler in self._in_turn():
            left_s = ends - time.monotonic()
            if left_s <= 0:
                break
            if not scheduler.is_well or scheduler.address in refused:
                continue
            try:
                return await self._ask(scheduler, method, body, left_s, may_repeat=may_repeat)
            except NotDeliveredError as unheard:
                error = unheard
                if unheard.reason == LATE:
                    await self._check(scheduler)  # one late connection of many says little
                else:
                    scheduler.leave_out(unheard)
            except UnavailableError as unanswered:
                if not may_repeat:
                    raise _unknown(unanswered) from unanswered
                error = unanswered
                if unanswered.reason == "CONNECTION_LOST":
                    await self._check(scheduler)  # an idle connection may just have been closed
                else:
                    refused.add(scheduler.address)
        raise self._nobody(error)

    def _in_turn(self) -> list[_Scheduler]:
        """Those that are well, each call beginning with another; the first one gets a second chance."""
        well = [one for one in self._schedulers if one.is_well]
        self._turn += 1
        start = self._turn % max(1, len(well))
        return [*well[start:], *well[:start], *well[start : start + 1]]

    async def _ask(
        self, scheduler: _Scheduler, method: PortMethod, body: bytes, deadline_s: float, *, may_repeat: bool
    ) -> bytes:
        """Its answer; where somebody else may be asked, not after it was found to be away."""
        asking = self._line.carry(scheduler.address, method.path, body, deadline_s=deadline_s)
        if not may_repeat:
            return await asking
        answer, away = asyncio.ensure_future(asking), asyncio.ensure_future(scheduler.away.wait())
        try:
            await asyncio.wait([answer, away], return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            message = f"the scheduler at {scheduler.address} went away before it answered: {scheduler.trouble}"
            raise UnavailableError(message, reason="SCHEDULER_AWAY")
        finally:
            away.cancel()
            if not answer.done():
                answer.cancel()
                with contextlib.suppress(asyncio.CancelledError, HoldfastError):
                    await answer

    def _nobody(self, error: HoldfastError | None) -> UnavailableError:
        troubles = [f"{one.address}: {one.trouble}" for one in self._schedulers if one.trouble]
        why = error.message if error is not None else "; ".join(troubles) or "there is none"
        message = f"no scheduler can answer just now ({why}); try again in a moment"
        return UnavailableError(message, reason="SCHEDULERS_AWAY", details={"retry_after_s": RETRY_AFTER_S})

    async def _keep_checking(self, scheduler: _Scheduler) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self._check(scheduler)

    async def _check(self, scheduler: _Scheduler) -> None:
        deadline_s = max(_HEALTH_S_MIN, _HEALTH_DEADLINES * self._interval_s)
        try:
            await self._line.ask(scheduler.address, HEALTH_PATH, deadline_s=deadline_s)
        except HoldfastError as error:
            # Who answers, but not that it is well, has said why in its own log.
            is_there = error.reason == "NOT_UNDERSTOOD"
            scheduler.leave_out(UnavailableError("it says that it cannot do its work") if is_there else error)
        else:
            scheduler.find_well()


def _unknown(lost: HoldfastError) -> UnavailableError:
    message = f"it is unknown whether this was done: {lost.message}"
    return UnavailableError(message, reason=lost.reason, details={"retry_after_s": RETRY_AFTER_S})
