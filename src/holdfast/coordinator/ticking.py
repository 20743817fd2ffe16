"""Ticks of schedules: looked for in every turn, and waited for in between."""

from collections.abc import Callable

from holdfast.coordinator.loop import RECHECK_MS, Coordinator
from holdfast.core import commands
from holdfast.core.model import Now

#: Ticks in one turn, so that a long absence does not keep the thread from its sockets.
_TICKS_MAX = 100
#: How soon a tick that found no room is tried again.
_RETRY_MS = 1_000


class Ticker:
    """A follower of the loop. `mint` makes the id of one job."""

    #: Time is waited for here, with a timer of its own.
    is_watching = False

    def __init__(self, coordinator: Coordinator, mint: Callable[[], str]) -> None:
        self._coordinator = coordinator
        self._mint = mint
        self._planned_ms = 0
        coordinator.followers.append(self)

    def follow(self, now: Now) -> None:
        """Lets everything that is due happen, one event a tick, and sees to the next."""
        schedules = self._coordinator.ledger.schedules
        if not self._coordinator.ledger.book.schedules:
            return
        is_refused = False
        for _ in range(_TICKS_MAX):
            due_ms = schedules.next_due_ms()
            if due_ms is None or due_ms > now.log_ms:
                break
            if self._coordinator.execute(commands.Tick(self._mint()), now) is not True:
                is_refused = True
                break
        self._plan(now, is_refused=is_refused)

    def _plan(self, now: Now, *, is_refused: bool) -> None:
        due_ms = self._coordinator.ledger.schedules.next_due_ms()
        if due_ms is None:
            return
        wait_ms = _RETRY_MS if is_refused else max(0, min(due_ms - now.log_ms, RECHECK_MS))
        at_ms = now.served_ms + wait_ms
        if 0 < self._planned_ms <= at_ms:
            return
        self._planned_ms = at_ms
        self._coordinator.later(wait_ms, self._on_time)

    def _on_time(self) -> None:
        self._planned_ms = 0
        self._coordinator.wake()
