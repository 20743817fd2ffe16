"""The coordinator: assigns queue processes to workers, and detects lost workers.

Invariants:
- The state in memory decides, and is saved in the database. An outage of the database stops no worker; the state is
  saved when the database is back.
- A worker whose connection dropped and which does not reconnect within the grace period is lost: the database takes
  back its leases, unless the worker was heard from meanwhile or has begun another session.
- Connections that drop because this coordinator stops make no worker lost.
- A worker that has missed `missed_max` heartbeats is gone. After a restart, a saved worker has the time of one
  heartbeat to report again.
- Several coordinators may share a database, each with its own workers: a fresh place of another one is left alone.
- A heartbeat may be a long poll: changes are sent at once, and without changes each heartbeat costs one request.
"""

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import msgspec

from holdfast import limits
from holdfast.core.validation import check_name
from holdfast.errors import HoldfastError, InvalidArgumentError
from holdfast.observe.logs import get_logger
from holdfast.server.auth.permissions import Scope
from holdfast.server.http.request import TEXT_TYPE, AdmittedRequest, HttpResponse, answer
from holdfast.server.http.routing import Route
from holdfast.topologies.pipeline.backend.messages import (
    ASSIGNED,
    NO_WORKER_ID,
    RELEASED,
    REPLACED,
    UNKNOWN,
    WAIT_MS_MAX,
    AssignmentReply,
    AssignmentRequest,
    HeartbeatRequest,
    LeaveRequest,
    PresenceRequest,
)
from holdfast.topologies.pipeline.backend.role_loops import StopSignal, ended, going_on
from holdfast.topologies.pipeline.backend.store import WorkerKind, WorkerStore
from holdfast.topologies.pipeline.roles.backoff import Outage
from holdfast.topologies.pipeline.roles.counters import RoleCounters
from holdfast.topologies.pipeline.roles.presence import LOOK_S, Key, Presence
from holdfast.topologies.pipeline.roles.role_health import RoleHealth, get, post
from holdfast.topologies.pipeline.roles.role_server import left
from holdfast.topologies.pipeline.roles.worker_table import QueueList, WorkerEntry, WorkerTable

_SAVE_S = 1.0
#: A worker that cannot reach its coordinator updates its place once per heartbeat, at most this much later.
_LATE_S = 1.0


class CoordinatorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a coordinator."""

    queues: QueueList
    heartbeat_ms: int = 10_000
    #: A worker that misses this many heartbeats in a row is lost.
    missed_max: int = 3


class PipelineCoordinator:
    """One coordinator: `start`, then `stop`."""

    def __init__(self, config: CoordinatorConfig, places: WorkerStore) -> None:
        self._config = config
        self._beat_s = config.heartbeat_ms / 1_000
        self._places = places
        self._worker_table = WorkerTable(config.queues)
        self._presence = Presence()
        self._log = get_logger()
        self._database = Outage("the database")
        self._is_restored = False
        self._heard: set[str] = set()
        #: Workers that said goodbye here, each with its session, and whose place is still saved.
        self._left: set[tuple[str, str]] = set()
        self._stirred = asyncio.Event()
        self._stopping = asyncio.Event()
        self._stop_signal = StopSignal()
        self._tasks: list[asyncio.Task[None]] = []
        self.tally = RoleCounters(
            "coordinator",
            {
                "heartbeats": "Heartbeats of workers.",
                "assignments": "Requests of workers for queue processes.",
                "workers_lost": "Workers whose connection dropped, or that missed their heartbeats.",
            },
        )
        self.tally.gauge("workers", "Workers that are connected.", lambda: len(self._worker_table))

    def vitals(self) -> RoleHealth:
        """Returns the health and the metrics of this role."""
        return RoleHealth("coordinator", families=self.tally.families, on_stop=self._stopping.set)

    def routes(self) -> list[Route]:
        """Returns the routes of this role."""
        return [
            post("/coordinator/request-assignment", self.request, AssignmentRequest, "Request queue processes"),
            post("/coordinator/heartbeat", self.heartbeat, HeartbeatRequest, "Heartbeat of a worker"),
            msgspec.structs.replace(
                get("/coordinator/presence", self.presence, "Connection that drops with the worker", Scope.WORK),
                query=PresenceRequest,
                is_stream=True,
            ),
            post("/coordinator/release-assignment", self.release, LeaveRequest, "Goodbye of a worker"),
            get("/coordinator/stats", self.stats, "Workers and queue processes"),
        ]

    def start(self) -> None:
        """Starts the loops that detect lost workers and save the places."""
        keepers = (self._keep_time, self._keep_books, self._keep_presence)
        self._tasks = [asyncio.create_task(going_on(keep)) for keep in keepers]

    async def stop(self) -> None:
        """Stops the loops; the next coordinator reads the saved places."""
        self._stop_signal.begin()
        self._stirred.set()
        await ended(self._tasks)

    # -- requests of workers

    async def request(self, request: AdmittedRequest) -> HttpResponse:
        """Assigns queue processes to a worker."""
        ask: AssignmentRequest = request.content
        if not ask.worker_id:
            return answer(_without_worker_id())
        if not _is_worker(ask):
            message = "worker_id, session, types and queues must be names, and slots must be within its limits"
            raise InvalidArgumentError(message, reason="WORKER_INVALID")
        self.tally.add("assignments")
        entry = self._worker_table.get(ask.worker_id)
        if entry is None or entry.session != ask.session:
            kind = WorkerKind(tuple(sorted(set(ask.types))), tuple(sorted(set(ask.queues))))
            self._log.info("worker_came", worker_id=ask.worker_id)
            entry = self._worker_table.sit(WorkerEntry(ask.worker_id, ask.session, kind, ask.slots))
        self._hear(entry)
        self._stirred.set()
        return answer(self._told(entry))

    async def heartbeat(self, request: AdmittedRequest) -> HttpResponse:
        """Receives a heartbeat; the response comes when the assignment changes, or after `wait_ms`."""
        beat: HeartbeatRequest = request.content
        self.tally.add("heartbeats")
        entry = self._worker_table.get(beat.worker_id)
        if not beat.worker_id:
            return answer(_without_worker_id())
        if entry is None:
            return answer(
                AssignmentReply(status=UNKNOWN, message="no worker of this name is known; request an assignment")
            )
        if _is_other(entry, beat.session):
            return answer(_replaced())
        self._hear(entry)
        entry.running = beat.running
        if beat.is_draining and not entry.is_draining:
            entry.is_draining = True
            self._worker_table.changed.add(entry.worker)
            self._worker_table.share()
        if beat.version == entry.version and beat.wait_ms:
            await self._wait(entry, min(beat.wait_ms, WAIT_MS_MAX) / 1_000, request)
        return answer(self._now(entry))

    async def presence(self, request: AdmittedRequest) -> "PresenceStream":
        """Keeps a connection open for as long as the worker's process lives."""
        present: PresenceRequest = request.query or PresenceRequest()
        return PresenceStream(self._presence, (present.worker_id, present.session), request, self._stopping)

    async def release(self, request: AdmittedRequest) -> HttpResponse:
        """Removes a worker; its queue processes are assigned to others at once."""
        leaving: LeaveRequest = request.content
        if not leaving.worker_id:
            return answer(_without_worker_id())
        entry = self._worker_table.get(leaving.worker_id)
        if entry is None:
            return answer(AssignmentReply(status=UNKNOWN))
        if _is_other(entry, leaving.session):
            return answer(_replaced())
        self._log.info("worker_left", worker_id=entry.worker)
        self._worker_table.leave([entry.worker])
        self._left.add((entry.worker, entry.session))
        self._presence.forget((entry.worker, entry.session))
        self._stirred.set()
        return answer(AssignmentReply(status=RELEASED))

    async def stats(self, request: AdmittedRequest) -> HttpResponse:
        """Returns the workers and their queue processes."""
        now_s = time.monotonic()
        workers = [
            {
                "worker_id": entry.worker,
                "types": entry.kind.routes,
                "queues": entry.kind.queues,
                "slots": entry.slots,
                "running": entry.running,
                "assigned": entry.queues,
                "is_draining": entry.is_draining or entry.is_drain_asked,
                "heard_ms_ago": round((now_s - entry.heard_s) * 1_000),
            }
            for entry in self._worker_table.all()
        ]
        return answer(
            {
                "workers": workers,
                "queues": self._worker_table.served(),
                "heartbeat_ms": self._config.heartbeat_ms,
                "is_database_away": self._database.is_on,
                **self.tally.view(),
            }
        )

    # -- inside

    def _hear(self, entry: WorkerEntry) -> None:
        entry.heard_s = time.monotonic()
        self._presence.hear((entry.worker, entry.session), entry.heard_s)
        self._heard.add(entry.worker)

    async def _wait(self, entry: WorkerEntry, wait_s: float, request: AdmittedRequest) -> None:
        """Waits until the seat changes, the worker disconnects, this coordinator stops, or the time is over."""
        await first_of(entry.changed.wait(), left(request), self._stopping.wait(), wait_s=wait_s)

    def _now(self, entry: WorkerEntry) -> AssignmentReply:
        """Returns the reply for a seat after its worker has waited."""
        current = self._worker_table.get(entry.worker)
        if current is entry:
            return self._told(entry)
        return _replaced() if current is not None else AssignmentReply(status=UNKNOWN)

    def _told(self, entry: WorkerEntry) -> AssignmentReply:
        high, normal = self._worker_table.split(entry.queues)
        return AssignmentReply(
            status=ASSIGNED,
            high=high,
            normal=normal,
            version=entry.version,
            drain=entry.is_drain_asked,
            heartbeat_ms=self._config.heartbeat_ms,
        )

    async def _keep_time(self) -> None:
        """Removes the workers that have missed their heartbeats."""
        while not self._stop_signal.is_on:
            await self._stop_signal.pause(self._beat_s / 4)
            silent = self._worker_table.silent(time.monotonic() - self._config.missed_max * self._beat_s)
            if silent:
                self._part_with(silent, "heartbeats were missed")

    async def _keep_presence(self) -> None:
        """Finds the workers that did not reconnect after their connections dropped."""
        while not self._stop_signal.is_on and not self._stopping.is_set():
            await self._stop_signal.pause(LOOK_S)
            for key in self._presence.look():
                await self._miss(key)

    async def _miss(self, key: Key) -> None:
        """Handles the end of a grace period: the worker is lost unless it has updated its place in the database."""
        worker, session = key
        entry, since_s = self._worker_table.get(worker), self._presence.since_s(key)
        if since_s is None:
            return
        if entry is None or entry.session != session:  # it left, or has begun another session
            self._presence.forget(key)
            return
        try:
            is_lost = await self._places.lose(worker, session, round((time.monotonic() - since_s) * 1_000))
        except HoldfastError:  # the worker could not record in the database that it lives, either
            self._presence.hear(key, time.monotonic())
            return
        if not is_lost:  # it records in the database once per heartbeat that it lives: wait for its next record
            self._presence.wait_longer(key, time.monotonic(), self._beat_s + _LATE_S)
            return
        self._presence.forget(key)
        if self._worker_table.get(worker) is entry:
            self._part_with([worker], "its connection dropped, and it did not reconnect")

    def _part_with(self, workers: list[str], message: str) -> None:
        """Removes lost workers; their queue processes are assigned to others."""
        self.tally.add("workers_lost", len(workers))
        self._log.warning("workers_lost", workers=len(workers), worker_id=workers[0], message=message)
        self._worker_table.leave(workers)
        self._stirred.set()

    async def _keep_books(self) -> None:
        """Restores the saved places once; then saves changes, and reads drain requests."""
        while not self._stop_signal.is_on:
            self._stirred.clear()
            try:
                await self._write_down()
                self._database.ended()
                wait_s = _SAVE_S
            except HoldfastError as error:
                wait_s = self._database.failed(error)
            if not self._stop_signal.is_on:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._stirred.wait()

    async def _write_down(self) -> None:
        seats, left = self._worker_table, frozenset(self._left)
        places = await self._places.all()
        if not self._is_restored:
            patience_s = (self._config.missed_max - 1) * self._beat_s
            seats.restore(places, time.monotonic() - patience_s)
            self._is_restored = True
        for place in places:
            if place.is_draining and seats.ask_to_drain(place.worker, place.session):
                self._log.info("drain_asked", worker_id=place.worker)
        strangers = [place for place in places if not seats.has(place.worker, place.session)]
        silent_ms = self._config.missed_max * self._config.heartbeat_ms
        gone = [
            place.worker
            for place in strangers
            if (place.worker, place.session) in left or place.heard_ms_ago >= silent_ms
        ]
        if gone:
            await self._places.remove(gone)
            seats.changed.update(gone)  # if the worker has another session here, its place can be saved now
        self._left -= left
        seats.gone.clear()
        changed = seats.changed | self._heard
        now_s = time.monotonic()
        saved = [entry.place(now_s) for worker in sorted(changed) if (entry := seats.get(worker)) is not None]
        seats.changed, self._heard = set(), set()
        if saved:
            try:
                await self._places.save(saved)
            except HoldfastError:
                seats.changed |= changed
                raise


class PresenceStream:
    """One persistent connection of a worker."""

    def __init__(self, presence: Presence, key: Key, request: AdmittedRequest, stopping: asyncio.Event) -> None:
        self._presence = presence
        self._key = key
        self._asked = request
        self._stopping = stopping

    async def run(self) -> None:
        """Keeps the connection open until it drops, or this coordinator stops."""
        self._asked.line.begin([(b"content-type", TEXT_TYPE), (b"cache-control", b"no-store")])
        self._presence.open(self._key)
        try:
            await first_of(left(self._asked), self._stopping.wait())
        finally:
            self._presence.drop(self._key, time.monotonic())


def _is_worker(ask: AssignmentRequest) -> bool:
    """Whether the place can be saved: an invalid one would make saving all others fail."""
    names = (ask.worker_id, *ask.types, *ask.queues, *filter(None, [ask.session]))
    is_small = len(ask.types) * max(1, len(ask.queues)) <= limits.LANES_MAX and 1 <= ask.slots <= limits.SLOTS_MAX
    return is_small and all(check_name("", name, "") is None for name in names)


async def first_of(*events: Coroutine[Any, Any, object], wait_s: float | None = None) -> None:
    """Waits until one of these has completed, or the time is over."""
    awaited = [asyncio.ensure_future(event) for event in events]
    try:
        await asyncio.wait(awaited, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in awaited:
            one.cancel()


def _is_other(entry: WorkerEntry, session: str) -> bool:
    """Whether the seat belongs to another session; a request without a session matches any."""
    return bool(session) and bool(entry.session) and session != entry.session


def _without_worker_id() -> AssignmentReply:
    return AssignmentReply(
        status=NO_WORKER_ID, message="worker_id is missing; give it, and types to request an assignment"
    )


def _replaced() -> AssignmentReply:
    return AssignmentReply(status=REPLACED, message="another session with this worker_id has replaced this one")
