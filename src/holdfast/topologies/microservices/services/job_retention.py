"""Removes finished records that are too old, too many or too large, oldest first.

It runs when a job has ended, and when the retention of the oldest record is over. It ends with its keeper.
"""

import asyncio

from holdfast.core.commands import Evict
from holdfast.core.retention import wait_ms
from holdfast.errors import HoldfastError, ResourceExhaustedError
from holdfast.topologies.microservices.services.owner import OwnerDecision, StateOwner
from holdfast.topologies.microservices.state.records import Records

#: Maximum wait of the timer, because the wall clock may jump meanwhile.
_RECHECK_MS = 60_000
#: Pause when the disk has no space for the event.
_STARVED_MS = 1_000


class RecordCleaner:
    """Removes finished records, one pass at a time; every method runs on the loop's thread."""

    def __init__(self, state_owner: StateOwner, records: Records, retention: Evict) -> None:
        self._state_owner = state_owner
        self._records = records
        self._retention = retention
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Starts a pass, or sets the timer for the next one."""
        wait_ms = self._wait_ms()
        if wait_ms is None or self._task is not None or (self._timer is not None and wait_ms > 0):
            return
        self._sleep(min(wait_ms, _RECHECK_MS))

    def _wait_ms(self) -> int | None:
        """Returns the time until a finished record must be removed; None if there is none."""
        wait = wait_ms(self._records.state.finished, self._retention, self._state_owner.now_ms())
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
            await self._state_owner.act(self._decide)
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
