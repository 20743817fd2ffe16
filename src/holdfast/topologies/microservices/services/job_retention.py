"""Forgets finished records in time: those that are too old, too many or too large, oldest first.

It looks whenever somebody tells it that a job has ended, and when the oldest one's time is over. It ends by itself with
its keeper.
"""

import asyncio

from holdfast.core.commands import Evict
from holdfast.core.retention import wait_ms
from holdfast.errors import HoldfastError, ResourceExhaustedError
from holdfast.topologies.microservices.services.owner import Keeper, OwnerDecision
from holdfast.topologies.microservices.state.records import Records

#: A timer never sleeps longer, because the wall clock may jump meanwhile.
_RECHECK_MS = 60_000
#: How long to wait when the disk has no room for the event.
_STARVED_MS = 1_000


class Forgetting:
    """One at a time; every method belongs to the loop's thread."""

    def __init__(self, keeper: Keeper, records: Records, retention: Evict) -> None:
        self._keeper = keeper
        self._records = records
        self._retention = retention
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Something may have to be forgotten, now or later."""
        wait_ms = self._wait_ms()
        if wait_ms is None or self._task is not None or (self._timer is not None and wait_ms > 0):
            return
        self._sleep(min(wait_ms, _RECHECK_MS))

    def _wait_ms(self) -> int | None:
        """How long until a finished record has to be forgotten; None if there is none."""
        wait = wait_ms(self._records.book.finished, self._retention, self._keeper.now_ms())
        return None if wait is None else max(0, wait)

    def _sleep(self, wait_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1_000, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._wait_ms() == 0:
            self._task = asyncio.get_running_loop().create_task(self._forget())
        else:
            self.look()

    async def _forget(self) -> None:
        try:
            await self._keeper.act(self._decide)
        except ResourceExhaustedError:
            self._task = None
            self._sleep(_STARVED_MS)
        except HoldfastError:  # the keeper has ended
            return
        else:
            self._task = None
            self.look()

    def _decide(self, now_ms: int) -> OwnerDecision:
        decided = self._records.evict(self._retention, now_ms)
        return OwnerDecision(decided.event, decided.reply)
