"""Fires due ticks of schedules in every turn, and sets a timer for the next one."""

from collections.abc import Callable

from holdfast.core import commands
from holdfast.core.model import Now
from holdfast.ledger.coordinator import RECHECK_MS, Coordinator

#: Ticks in one turn, so that many due ticks do not keep the thread from its sockets.
_TICKS_MAX = 100
#: The delay before a retry: of a tick that was refused, and of one that found the open frame full.
_RETRY_MS, _NEXT_FRAME_MS = 1_000, 20


class TickTimer:
    """A follower of the coordinator. `mint` creates the id of one job."""

    #: False, because the ticker has a timer of its own.
    is_watching = False

    def __init__(self, coordinator: Coordinator, mint: Callable[[], str]) -> None:
        self._coordinator = coordinator
        self._mint = mint
        self._planned_ms = 0
        coordinator.followers.append(self)

    def follow(self, now: Now) -> None:
        """Fires all due ticks, with one event each, and plans the next turn."""
        schedules = self._coordinator.ledger.schedules
        if not self._coordinator.ledger.state.schedules:
            return
        least_ms = 0
        for _ in range(_TICKS_MAX):
            due_ms = schedules.next_due_ms()
            if due_ms is None or due_ms > now.log_ms:
                break
            if self._coordinator.is_frame_full:
                least_ms = _NEXT_FRAME_MS
                break
            if self._coordinator.execute(commands.Tick(self._mint()), now) is not True:
                least_ms = _RETRY_MS
                break
        self._plan(now, least_ms)

    def _plan(self, now: Now, least_ms: int) -> None:
        due_ms = self._coordinator.ledger.schedules.next_due_ms()
        if due_ms is None:
            return
        wait_ms = max(least_ms, min(due_ms - now.log_ms, RECHECK_MS))
        at_ms = now.served_ms + wait_ms
        if 0 < self._planned_ms <= at_ms:
            return
        self._planned_ms = at_ms
        self._coordinator.later(wait_ms, self._on_time)

    def _on_time(self) -> None:
        self._planned_ms = 0
        self._coordinator.wake()
