"""A clock that stands still until a test moves it."""

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
    from holdfast.topologies.embedded.served_ledger import Serving

_NEVER_MS = 1 << 62


class ManualClock:
    """Begins now, and moves by `advance` alone. Apps in memory that are made with it follow at once."""

    def __init__(self) -> None:
        self._wall_ms = time.time_ns() // 1_000_000
        self._steady_ms = 0
        self._followers: weakref.WeakSet[AppConnection] = weakref.WeakSet()

    def wall_ms(self) -> int:
        """The time of day."""
        return self._wall_ms

    def steady_ms(self) -> int:
        """The time since it was made."""
        return self._steady_ms

    def uptime(self) -> Uptime | None:
        """As long as the steady time; the machine is this clock."""
        return Uptime("manual", self._steady_ms)

    def drive(self, connection: "AppConnection") -> None:
        """From now on this app hears of every advance."""
        self._followers.add(connection)

    def advance(self, seconds: float) -> None:
        """Lets time pass: delays, retries, ticks and leases whose time comes have come when this returns."""
        if not seconds >= 0:
            raise InvalidArgumentError(f"expected time to go forward, got {seconds!r} seconds")
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
        """A coordinator takes a long step for a pause of its own, in which no lease runs out: the steps are short."""
        coordinator = (await memory_of(connection)).core.coordinator
        end_ms, before_ms = self._wall_ms + moved_ms, 0
        # Whoever is there all the time misses no tick: the clock stops at each of them.
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
        await connection.call(lambda ports: ports.admin.stats())  # answered after all that is due was decided


async def memory_of(connection: "AppConnection") -> "Serving":
    """The ledger of an app in memory; `InvalidArgumentError` for any other app."""
    from holdfast.topologies.embedded.memory import MemoryLink  # noqa: PLC0415 - only who opens an app pays for it

    link = connection.link()
    if not isinstance(link, MemoryLink):
        raise InvalidArgumentError("expected an app over memory://; see holdfast.testing.in_memory")
    await link.work()
    return link.serving
