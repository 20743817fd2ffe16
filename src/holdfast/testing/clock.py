"""A clock that moves only when a test advances it."""

import time
import weakref
from typing import TYPE_CHECKING

from holdfast import limits
from holdfast.clock import Uptime
from holdfast.errors import InvalidArgumentError
from holdfast.ledger.command_clock import STALL_MS

if TYPE_CHECKING:
    from holdfast.ledger.coordinator import Coordinator
    from holdfast.sdk.connection import AppConnection
    from holdfast.topologies.embedded.served_ledger import ServedLedger

_NEVER_MS = 1 << 62


class ManualClock:
    """A clock that starts now and moves only by `advance`. Apps in memory that are made with it follow at once."""

    def __init__(self) -> None:
        self._wall_ms = time.time_ns() // 1_000_000
        self._steady_ms = 0
        self._followers: weakref.WeakSet[AppConnection] = weakref.WeakSet()

    def wall_ms(self) -> int:
        """The time of day."""
        return self._wall_ms

    def steady_ms(self) -> int:
        """The time since the clock was made."""
        return self._steady_ms

    def uptime(self) -> Uptime | None:
        """The steady time, as the uptime of a machine that started with this clock."""
        return Uptime("manual", self._steady_ms)

    def drive(self, connection: "AppConnection") -> None:
        """Makes an app follow every advance from now on."""
        self._followers.add(connection)

    def advance(self, seconds: float) -> None:
        """Advances the clock: delays, retries, ticks and lease expiries in this time have happened when it returns."""
        if not seconds >= 0:
            raise InvalidArgumentError(
                f"seconds must be a number from 0, got {seconds!r}; the clock only moves forward"
            )
        followers = list(self._followers)
        if not followers:
            self._move(round(seconds * 1_000))
        for index, connection in enumerate(followers):
            moved_ms = round(seconds * 1_000) if index == 0 else 0
            connection.portal().run(lambda moved_ms=moved_ms, connection=connection: self._pass(connection, moved_ms))  # type: ignore[misc] # mypy cannot infer the default

    def _move(self, step_ms: int) -> None:
        self._steady_ms += step_ms
        self._wall_ms += step_ms

    async def _pass(self, connection: "AppConnection", moved_ms: int) -> None:
        """Advances in short steps: a coordinator takes a long step for its own pause, during which no lease expires."""
        coordinator = memory_of(connection).core.coordinator
        end_ms, before_ms = self._wall_ms + moved_ms, 0
        # The clock stops at each tick: a coordinator that runs all the time misses no tick.
        while before_ms < (due_ms := coordinator.ledger.schedules.next_due_ms() or _NEVER_MS) <= end_ms:
            await self._step(connection, coordinator, max(0, due_ms - self._wall_ms))
            before_ms = due_ms
        await self._step(connection, coordinator, max(0, end_ms - self._wall_ms))

    async def _step(self, connection: "AppConnection", coordinator: "Coordinator", moved_ms: int) -> None:
        listened_ms = min(moved_ms, 2 * limits.LEASE_MS_MAX)
        self._move(moved_ms - listened_ms)
        while listened_ms > 0:
            self._move(min(STALL_MS, listened_ms))
            listened_ms -= STALL_MS
            coordinator.time.now()
        coordinator.wake()
        await connection.call(lambda ports: ports.admin.stats())  # answered after everything that is due was processed


def memory_of(connection: "AppConnection") -> "ServedLedger":
    """The ledger of an app in memory; `InvalidArgumentError` for any other app. Only for the portal's loop."""
    from holdfast.topologies.embedded.served_ledger import MemoryLink  # noqa: PLC0415 - imported only when an app is opened

    link = connection.link()
    if not isinstance(link, MemoryLink):
        raise InvalidArgumentError(
            'the app must keep its jobs in memory, got another backend; use Holdfast("memory://") or'
            " holdfast.testing.in_memory(app)"
        )
    return link
