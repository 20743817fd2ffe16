"""A watcher: rows that should be on their way are claimed, and handed to the exchanges as tickets.

Invariants:
- Only rows are claimed that some worker could run, and none of a lane that is full.
- What was claimed and not taken is made visible again; what is lost on the way becomes so by its timeout.
- It looks when the database says so, when the next row becomes visible, and every two seconds in any case, with jitter:
  a wake-up that is lost costs no more than that. One that keeps coming too late lets the others look first.
- The database and the exchanges may go and come back; it goes on when they do.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import msgspec

from holdfast import limits
from holdfast.errors import HoldfastError
from holdfast.server.http.request import Answer, Asked, answer
from holdfast.server.http.routing import Route
from holdfast.topologies.pipeline.backend.messages import VISIBILITY_MS
from holdfast.topologies.pipeline.backend.role_loops import Ending, ended, going_on
from holdfast.topologies.pipeline.backend.store import Claims, Places, Ticket, WorkerKind
from holdfast.topologies.pipeline.roles.backoff import Outage
from holdfast.topologies.pipeline.roles.counters import RoleCounters
from holdfast.topologies.pipeline.roles.exchange_clients import Exchanges
from holdfast.topologies.pipeline.roles.full_lanes import FullLanes
from holdfast.topologies.pipeline.roles.role_health import RoleHealth, get

#: How often the kinds of workers are read.
_KINDS_S = 1.0
#: Not more often than this, however much happens.
_KINDS_S_MIN = 0.05
#: How many rows are tidied up together, and how often what ended is looked at.
_TIDY_ROWS = 1_000
_RETIRE_S = 30.0
#: How long what found its lane full is left alone, at least.
_FULL_DELAY_MS = 50
#: How soon what was meant for somebody who is away goes to somebody else.
_AGAIN_S = 0.01
#: A watcher that was woken in vain leaves the next wake-ups to the others for so long, at first and at most.
_IDLE_S = 0.02
_IDLE_S_MAX = 0.25


class WatcherConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a watcher works."""

    poll_ms: int = 2_000
    #: How many rows are claimed together.
    batch: int = 500
    visibility_ms: int = VISIBILITY_MS
    #: How long jobs that have ended are kept, and those that FAILED.
    retain_ms: int = limits.RETAIN_MS_DEFAULT
    retain_failed_ms: int = limits.RETAIN_FAILED_MS_DEFAULT


class AwayError(Exception):
    """Somebody who should take tickets is away: a pause is worth more than a wake-up."""

    def __init__(self, pause_s: float) -> None:
        super().__init__()
        self.pause_s = pause_s


class WatcherRole:
    """One watcher: `start`, then `stop`."""

    def __init__(self, config: WatcherConfig, claims: Claims, places: Places, exchanges: Exchanges) -> None:
        self._config = config
        self._claims = claims
        self._places = places
        self._exchanges = exchanges
        self._kinds: tuple[WorkerKind, ...] = ()
        self._full = FullLanes()
        self._woken = asyncio.Event()
        #: The database has said something: workers may have come, too.
        self._told = asyncio.Event()
        self._database = Outage("the database")
        self._line = Outage("the exchanges")
        #: Another delivery goes elsewhere, so that the first pauses are short.
        self._queues = Outage("the queue processes", first_s=0.005)
        #: How long a wake-up is left alone after the last look, because that was in vain.
        self._idle_s = 0.0
        self._ending = Ending()
        self._tasks: list[asyncio.Task[None]] = []
        self._listening: asyncio.Task[None] | None = None
        self.tally = RoleCounters(
            "watcher",
            {
                "polls": "Looks at the database.",
                "claimed": "Rows that were claimed.",
                "delivered": "Tickets that an exchange took.",
                "returned": "Rows that were claimed and could not be handed on.",
                "expired": "Leases of workers that ran out.",
                "retired": "Jobs that ended long ago and were forgotten.",
            },
        )

    def vitals(self) -> RoleHealth:
        """What it says of itself."""
        return RoleHealth("watcher", is_ready=lambda: not self._database.is_on, families=self.tally.families)

    def routes(self) -> list[Route]:
        """The rows of the table."""
        return [
            get("/watcher/stats", self.stats, "The watcher in numbers"),
            msgspec.structs.replace(get("/stats", self.stats, "The watcher in numbers"), is_short_form=True),
        ]

    async def stats(self, asked: Asked) -> Answer:
        """What it has done, and what it knows."""
        return answer(
            {
                "kinds": self._kinds,
                "full_lanes": self._full.all(),
                "exchanges_away": self._exchanges.absence.all(),
                "is_database_away": self._database.is_on,
                **self.tally.view(),
            }
        )

    def start(self) -> None:
        """Begins to look."""
        self._tasks = [asyncio.create_task(going_on(look)) for look in (self._look_on, self._tidy, self._know_workers)]
        self._listening = asyncio.create_task(going_on(self._listen))

    async def stop(self) -> None:
        """Hands on what is being claimed, and looks no more."""
        self._ending.begin()
        self._woken.set()
        self._told.set()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        await ended(self._tasks)

    # -- claiming

    async def _look_on(self) -> None:
        while not self._ending.is_on:
            self._woken.clear()
            try:
                wait_s = await self._look()
                self._database.ended()
            except AwayError as away:
                await self._ending.pause(away.pause_s)
                continue
            except HoldfastError as error:
                await self._ending.pause(self._database.failed(error))
                continue
            if not self._ending.is_on:
                await self._rest(wait_s)

    async def _rest(self, wait_s: float) -> None:
        """Until it is woken; where others were quicker the last times, they are not disturbed all the time."""
        began_s = time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._woken.wait()
        waited_s = time.monotonic() - began_s
        if waited_s < min(self._idle_s, wait_s):
            await self._ending.pause(min(self._idle_s, wait_s) - waited_s)

    def _learn(self, *, was_of_use: bool) -> None:
        self._idle_s = 0.0 if was_of_use else min(max(_IDLE_S, 2 * self._idle_s), _IDLE_S_MAX)

    async def _look(self) -> float:
        """Claims all that can be handed on; how long nothing is to be expected then."""
        self.tally.add("polls")
        await self._look_at_full_lanes()
        poll_s = self._config.poll_ms / 1_000 * random.uniform(0.75, 1.25)
        if not self._kinds:
            return poll_s
        config, tickets, claimed = self._config, list[Ticket](), 0
        while not self._ending.is_on:
            tickets = await self._claims.claim(config.batch, config.visibility_ms, self._kinds, self._full.all())
            self.tally.add("claimed", len(tickets))
            claimed += len(tickets)
            if tickets:
                await self._hand_on(tickets)
            if len(tickets) < config.batch:
                break
        self._learn(was_of_use=claimed > 0)
        if not self._woken.is_set():
            visible_ms = await self._claims.next_visible_ms()
            poll_s = poll_s if visible_ms is None else min(poll_s, max(1, visible_ms) / 1_000)
        full_s = self._full.next_s()
        return poll_s if full_s is None else min(poll_s, full_s)

    async def _hand_on(self, tickets: Sequence[Ticket]) -> None:
        """To an exchange; what is not taken goes back. `AwayError` if somebody was not there to take it."""
        try:
            routed = await self._exchanges.push(tickets, self._config.visibility_ms)
        except HoldfastError as error:
            pause_s = self._line.failed(error)
            await self._give_back([ticket.job_id for ticket in tickets], round(pause_s * 1_000))
            raise AwayError(pause_s) from error
        self.tally.add("delivered", routed.taken)
        self._full.add(routed.lanes)
        if routed.away:
            await self._give_back(routed.away, 0)
        if routed.full:
            await self._give_back(routed.full, _FULL_DELAY_MS)
        self._line.ended()
        if routed.taken:
            self._queues.ended()
        if routed.away:
            raise AwayError(_AGAIN_S if routed.taken else self._queues.failed(_nobody_there()))

    async def _give_back(self, job_ids: list[str], delay_ms: int) -> None:
        self.tally.add("returned", len(job_ids))
        await self._claims.unclaim(job_ids, delay_ms)

    async def _look_at_full_lanes(self) -> None:
        lanes = self._full.to_look_at()
        if not lanes:
            return
        try:
            self._full.seen(lanes, await self._exchanges.rooms(lanes))
        except HoldfastError:
            self._full.forget(lanes)

    # -- beside that

    async def _listen(self) -> None:
        """Wakes whoever looks; while it is deaf, the polls have to do."""
        deafness = Outage("the notices of the database")
        while True:
            try:
                async for is_about_more in self._claims.due():
                    deafness.ended()
                    self._woken.set()
                    if is_about_more:
                        self._told.set()
            except HoldfastError as error:
                await asyncio.sleep(deafness.failed(error))
                self._woken.set()
            else:
                await asyncio.sleep(self._config.poll_ms / 1_000)

    async def _tidy(self) -> None:
        """Takes leases back that ran out, and now and then forgets what ended long ago."""
        forget_s = 0.0
        while not self._ending.is_on:
            pause_s = self._config.poll_ms / 1_000 * random.uniform(0.25, 0.75)
            await self._ending.pause(pause_s)
            forget_s -= pause_s
            with suppress(HoldfastError):  # the database is away, and whoever looks says so
                await self._all(lambda: self._claims.expire(_TIDY_ROWS), "expired")
                if forget_s <= 0:
                    forget_s = _RETIRE_S * random.uniform(0.5, 1.0)
                    await self._all(self._retire, "retired")

    async def _retire(self) -> int:
        config = self._config
        return await self._claims.retire(
            _TIDY_ROWS, retain_ms=config.retain_ms, retain_failed_ms=config.retain_failed_ms
        )

    async def _all(self, some: Callable[[], Awaitable[int]], name: str) -> None:
        """Some at a time, until there are no more."""
        count = _TIDY_ROWS
        while count == _TIDY_ROWS:
            count = await some()
            self.tally.add(name, count)

    async def _know_workers(self) -> None:
        """Whoever could run something new is worth a look."""
        while not self._ending.is_on:
            self._told.clear()
            with suppress(HoldfastError):
                places = await self._places.all()
                kinds = tuple(sorted({place.kind for place in places if not place.is_draining}))
                if kinds != self._kinds:
                    self._kinds = kinds
                    self._woken.set()
            await self._ending.pause(_KINDS_S_MIN)
            if not self._ending.is_on:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._told.wait(), _KINDS_S * random.uniform(0.75, 1.25))


def _nobody_there() -> HoldfastError:
    return HoldfastError("no queue process takes anything", reason="QUEUES_AWAY")
