"""A watcher: claims visible rows, and sends them to the exchanges as tickets.

Invariants:
- It claims only rows that some worker could run, and none of a full lane.
- Rows that were claimed and not accepted are made visible again; if a ticket is lost, its row becomes visible by its
  visibility timeout.
- It polls after a notification of the database, when the next row becomes visible, and in any case every two seconds,
  with jitter, in case that a notification is lost. A watcher whose polls find nothing lets the others poll first.
- It continues after outages of the database and of the exchanges.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import msgspec

from holdfast import limits
from holdfast.errors import HoldfastError
from holdfast.server.http.request import AdmittedRequest, HttpResponse, answer
from holdfast.server.http.routing import Route
from holdfast.topologies.pipeline.backend.messages import VISIBILITY_MS
from holdfast.topologies.pipeline.backend.role_loops import StopSignal, ended, going_on
from holdfast.topologies.pipeline.backend.store import ClaimStore, Ticket, WorkerKind, WorkerStore
from holdfast.topologies.pipeline.roles.backoff import Outage
from holdfast.topologies.pipeline.roles.counters import RoleCounters
from holdfast.topologies.pipeline.roles.exchange_clients import ExchangeClients
from holdfast.topologies.pipeline.roles.full_lanes import FullLanes
from holdfast.topologies.pipeline.roles.role_health import RoleHealth, get

#: The interval at which the kinds of workers are read.
_KINDS_S = 1.0
#: The minimum interval, after notifications.
_KINDS_S_MIN = 0.05
#: The batch size of the clean-up, and the interval at which old jobs are deleted.
_TIDY_ROWS = 1_000
_RETIRE_S = 30.0
#: The minimum delay of rows whose lane was full.
_FULL_DELAY_MS = 50
#: The pause before rows of an unavailable queue process are claimed again, which sends them to another one.
_AGAIN_S = 0.01
#: After a poll that found nothing, wake-ups are ignored for this time, at first and at most: other watchers are faster.
_IDLE_S = 0.02
_IDLE_S_MAX = 0.25


class WatcherConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a watcher."""

    poll_ms: int = 2_000
    #: The number of rows of one claim.
    batch: int = 500
    visibility_ms: int = VISIBILITY_MS
    #: How long finished jobs are kept, and FAILED ones.
    retain_ms: int = limits.RETAIN_MS_DEFAULT
    retain_failed_ms: int = limits.RETAIN_FAILED_MS_DEFAULT


class AwayError(Exception):
    """An exchange or queue process is unavailable: the watcher pauses, and ignores wake-ups meanwhile."""

    def __init__(self, pause_s: float) -> None:
        super().__init__()
        self.pause_s = pause_s


class WatcherRole:
    """One watcher: `start`, then `stop`."""

    def __init__(
        self, config: WatcherConfig, claims: ClaimStore, places: WorkerStore, exchanges: ExchangeClients
    ) -> None:
        self._config = config
        self._claims = claims
        self._places = places
        self._exchanges = exchanges
        self._kinds: tuple[WorkerKind, ...] = ()
        self._full = FullLanes()
        self._woken = asyncio.Event()
        #: A notification of the database after which the workers are read again.
        self._told = asyncio.Event()
        self._database = Outage("the database")
        self._line = Outage("the exchanges")
        #: The next delivery goes to another queue process, so the first pauses are short.
        self._queues = Outage("the queue processes", first_s=0.005)
        #: How long wake-ups are ignored after the last poll, because it found nothing.
        self._idle_s = 0.0
        self._stop_signal = StopSignal()
        self._tasks: list[asyncio.Task[None]] = []
        self._listening: asyncio.Task[None] | None = None
        self.tally = RoleCounters(
            "watcher",
            {
                "polls": "Polls of the database.",
                "claimed": "Rows that were claimed.",
                "delivered": "Tickets that an exchange accepted.",
                "returned": "Rows that were claimed and could not be delivered.",
                "expired": "Leases that expired.",
                "retired": "Old finished jobs that were deleted.",
            },
        )

    def vitals(self) -> RoleHealth:
        """Returns the health and the metrics of this role."""
        return RoleHealth("watcher", is_ready=lambda: not self._database.is_on, families=self.tally.families)

    def routes(self) -> list[Route]:
        """Returns the routes of this role."""
        return [
            get("/watcher/stats", self.stats, "Statistics of the watcher"),
            msgspec.structs.replace(get("/stats", self.stats, "Statistics of the watcher"), is_short_form=True),
        ]

    async def stats(self, request: AdmittedRequest) -> HttpResponse:
        """Returns the counters and the state of the watcher."""
        return answer(
            {
                "kinds": self._kinds,
                "full_lanes": self._full.all(),
                "exchanges_away": self._exchanges.breaker.all(),
                "is_database_away": self._database.is_on,
                **self.tally.view(),
            }
        )

    def start(self) -> None:
        """Starts the loops of the watcher."""
        self._tasks = [asyncio.create_task(going_on(look)) for look in (self._look_on, self._tidy, self._know_workers)]
        self._listening = asyncio.create_task(going_on(self._listen))

    async def stop(self) -> None:
        """Sends the rows that are being claimed, and ends the loops."""
        self._stop_signal.begin()
        self._woken.set()
        self._told.set()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        await ended(self._tasks)

    # -- claiming

    async def _look_on(self) -> None:
        while not self._stop_signal.is_on:
            self._woken.clear()
            try:
                wait_s = await self._look()
                self._database.ended()
            except AwayError as away:
                await self._stop_signal.pause(away.pause_s)
                continue
            except HoldfastError as error:
                await self._stop_signal.pause(self._database.failed(error))
                continue
            if not self._stop_signal.is_on:
                await self._rest(wait_s)

    async def _rest(self, wait_s: float) -> None:
        """Waits for a wake-up; if the last polls found nothing, at least for `_idle_s`."""
        began_s = time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._woken.wait()
        waited_s = time.monotonic() - began_s
        if waited_s < min(self._idle_s, wait_s):
            await self._stop_signal.pause(min(self._idle_s, wait_s) - waited_s)

    def _learn(self, *, was_of_use: bool) -> None:
        self._idle_s = 0.0 if was_of_use else min(max(_IDLE_S, 2 * self._idle_s), _IDLE_S_MAX)

    async def _look(self) -> float:
        """Claims and sends all rows that it can; returns the time until the next poll."""
        self.tally.add("polls")
        await self._look_at_full_lanes()
        poll_s = self._config.poll_ms / 1_000 * random.uniform(0.75, 1.25)
        if not self._kinds:
            return poll_s
        config, tickets, claimed = self._config, list[Ticket](), 0
        while not self._stop_signal.is_on:
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
        """Sends tickets to an exchange, and gives back the rows that were not accepted.

        Raises `AwayError` if no exchange, or a queue process of these tickets, was available.
        """
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

    # -- other loops

    async def _listen(self) -> None:
        """Wakes the polling loop after notifications; during an outage, it polls by time only."""
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
        """Takes back expired leases, and deletes old jobs at intervals."""
        forget_s = 0.0
        while not self._stop_signal.is_on:
            pause_s = self._config.poll_ms / 1_000 * random.uniform(0.25, 0.75)
            await self._stop_signal.pause(pause_s)
            forget_s -= pause_s
            with suppress(HoldfastError):  # the polling loop logs that the database is unavailable
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
        """Calls `some` until it has processed less than a full batch."""
        count = _TIDY_ROWS
        while count == _TIDY_ROWS:
            count = await some()
            self.tally.add(name, count)

    async def _know_workers(self) -> None:
        """Reads the kinds of workers; a change wakes the polling loop."""
        while not self._stop_signal.is_on:
            self._told.clear()
            with suppress(HoldfastError):
                places = await self._places.all()
                kinds = tuple(sorted({place.kind for place in places if not place.is_draining}))
                if kinds != self._kinds:
                    self._kinds = kinds
                    self._woken.set()
            await self._stop_signal.pause(_KINDS_S_MIN)
            if not self._stop_signal.is_on:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._told.wait(), _KINDS_S * random.uniform(0.75, 1.25))


def _nobody_there() -> HoldfastError:
    return HoldfastError("no queue process accepts tickets", reason="QUEUES_AWAY")
