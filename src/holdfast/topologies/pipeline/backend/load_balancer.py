"""The load balancer: selects the scheduler for a call, and the next one if that does not respond.

It checks the health of every scheduler once per interval; the healthy ones are called in turn. Invariants: a call that
was not delivered goes to the next scheduler at once; one that may have been delivered does so only if it is repeatable;
no repeatable call waits for a scheduler that was found to be unavailable; every call has a deadline; and if no
scheduler is healthy, the call fails at once with a hint when to retry.
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
#: The deadline of a health check, in intervals, and its minimum: a busy scheduler may be slow to respond.
_HEALTH_DEADLINES, _HEALTH_S_MIN = 2, 1.0
#: When a client whose call failed may retry.
RETRY_AFTER_S = "1"


class SchedulerCalls(Protocol):
    """The methods of `RoleConnections` that the balancer needs."""

    async def ask(self, address: str, path: str, *, deadline_s: float) -> object:
        """Sends a GET."""
        ...

    async def carry(self, address: str, path: str, body: bytes, *, deadline_s: float) -> bytes:
        """Sends a POST."""
        ...


class SchedulerView(msgspec.Struct, frozen=True):
    """One scheduler, as the balancer sees it."""

    address: str
    is_well: bool
    #: Why it is not healthy; empty if it is.
    trouble: str = ""


class _Scheduler:
    """One scheduler; `away` is set while it is not healthy."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.trouble = "not checked yet"
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


class LoadBalancer:
    """Round robin over the healthy schedulers. `start`, then `close`."""

    def __init__(self, schedulers: Sequence[str], line: SchedulerCalls, interval_s: float = 1.0) -> None:
        self._schedulers = [_Scheduler(address) for address in schedulers]
        self._line = line
        self._interval_s = interval_s
        self._turn = 0
        self._checking: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Checks every scheduler once, and from then on every interval."""
        await asyncio.gather(*map(self._check, self._schedulers))
        self._checking = [asyncio.create_task(going_on(partial(self._keep_checking, one))) for one in self._schedulers]

    async def close(self) -> None:
        """Stops the health checks; the connections are not closed."""
        for task in self._checking:
            task.cancel()
        await asyncio.gather(*self._checking, return_exceptions=True)

    @property
    def schedulers(self) -> list[SchedulerView]:
        """The state of every scheduler."""
        return [SchedulerView(one.address, one.is_well, one.trouble) for one in self._schedulers]

    async def call(
        self, method: PortMethod, body: bytes, *, is_repeatable: bool | None = None, wait_s: float = 0
    ) -> bytes:
        """Returns the response of one scheduler, which may take `wait_s` longer than the method's timeout."""
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
                    await self._check(scheduler)  # a single late connection does not prove that it is unavailable
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
        raise self._none_available(error)

    def _in_turn(self) -> list[_Scheduler]:
        """The healthy schedulers, starting with another one at each call; the first one is also the last resort."""
        well = [one for one in self._schedulers if one.is_well]
        self._turn += 1
        start = self._turn % max(1, len(well))
        return [*well[start:], *well[:start], *well[start : start + 1]]

    async def _ask(
        self, scheduler: _Scheduler, method: PortMethod, body: bytes, deadline_s: float, *, may_repeat: bool
    ) -> bytes:
        """Returns its response; a repeatable call gives up once the scheduler is found to be unavailable."""
        asking = self._line.carry(scheduler.address, method.path, body, deadline_s=deadline_s)
        if not may_repeat:
            return await asking
        answer, away = asyncio.ensure_future(asking), asyncio.ensure_future(scheduler.away.wait())
        try:
            await asyncio.wait([answer, away], return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            message = f"the scheduler at {scheduler.address} failed before it responded: {scheduler.trouble}"
            raise UnavailableError(message, reason="SCHEDULER_AWAY")
        finally:
            away.cancel()
            if not answer.done():
                answer.cancel()
                with contextlib.suppress(asyncio.CancelledError, HoldfastError):
                    await answer

    def _none_available(self, error: HoldfastError | None) -> UnavailableError:
        troubles = [f"{one.address}: {one.trouble}" for one in self._schedulers if one.trouble]
        why = error.message if error is not None else "; ".join(troubles) or "there is none"
        message = f"no scheduler is available ({why}); try again in a moment"
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
            # A scheduler that responds but is not ready has logged the cause itself.
            is_there = error.reason == "NOT_UNDERSTOOD"
            scheduler.leave_out(UnavailableError("it reports that it is not ready") if is_there else error)
        else:
            scheduler.find_well()


def _unknown(lost: HoldfastError) -> UnavailableError:
    message = f"it is unknown whether this was done: {lost.message}"
    return UnavailableError(message, reason=lost.reason, details={"retry_after_s": RETRY_AFTER_S})
