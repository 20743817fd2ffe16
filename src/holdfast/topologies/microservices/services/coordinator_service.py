"""The coordinator service: grants jobs to workers, tracks leases, and settles the outcomes of attempts.

It stores nothing durably: records, tokens and budgets belong to the owners, and this process may end between any two
steps. After a restart it adopts the leases of RUNNING records. A protocol that has begun continues when its caller
stops waiting. While an owner is unavailable, workers get UNAVAILABLE, and unfinished steps are retried later.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import TypeVar

from holdfast import limits
from holdfast.clock import system_clock
from holdfast.core.commands import ReportRow
from holdfast.core.model import Now
from holdfast.core.workers import WorkerRegistry, beat_ms
from holdfast.errors import AbortedError, HoldfastError
from holdfast.ledger.command_clock import CommandClock
from holdfast.ledger.ports import Clock
from holdfast.observe.logs import get_logger
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc
from holdfast.server.grpc.internal_messages import report_row
from holdfast.server.grpc.status import Context, answered
from holdfast.server.grpc.work_service import checked_worker
from holdfast.topologies.microservices.backend.owner_clients import Owners
from holdfast.topologies.microservices.grpc_channel import open_channel
from holdfast.topologies.microservices.services.callers import credential
from holdfast.topologies.microservices.services.dispatch import JobDispatcher, wanted_of
from holdfast.topologies.microservices.services.environment import CoordinatorEnvironment, hashes_of
from holdfast.topologies.microservices.services.heartbeats import HeartbeatReply, Heartbeats
from holdfast.topologies.microservices.services.internal_server import ServiceServer
from holdfast.topologies.microservices.services.jobs_in_flight import JobsInFlight
from holdfast.topologies.microservices.services.lease_reconciler import LeaseReconciler
from holdfast.topologies.microservices.services.lease_table import LeaseTable
from holdfast.topologies.microservices.services.outcomes import OutcomeWriter
from holdfast.topologies.microservices.services.queue_sweeper import Sweeper, SweepTimer
from holdfast.topologies.microservices.services.reports import OutcomeReports
from holdfast.topologies.microservices.services.roles import GRACE_S, Fatal, full_name

#: The bounds of the interval between two ticks; short enough that all of it counts as served time.
_TICK_MS_MAX = 100
_TICK_MS_MIN = 10

Answer = TypeVar("Answer")
Work = Callable[..., Coroutine[object, object, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkTerms:
    """The heartbeat interval, the lease length (`worker_timeout_ms`) and the size limit of outputs."""

    heartbeat_ms: int = limits.HEARTBEAT_MS
    worker_timeout_ms: int = limits.WORKER_TIMEOUT_MS
    output_bytes_max: int = limits.OUTPUT_BYTES_MAX


class WorkCoordinator:
    """The parts of the service, driven by calls of workers and by ticks."""

    def __init__(self, owners: Owners, terms: WorkTerms, clock: Clock) -> None:
        self.terms = terms
        self._time = CommandClock(clock, 0)
        self._tasks: set[asyncio.Task[object]] = set()
        self._background: dict[str, asyncio.Task[None]] = {}
        self._failing: set[str] = set()
        self._round_ms: int | None = None
        self._registry = WorkerRegistry(terms.worker_timeout_ms)
        #: The newest session of each worker id.
        self._incarnations: dict[str, int] = {}
        self._sweeps = SweepTimer(terms.heartbeat_ms)
        self.table = LeaseTable(terms.worker_timeout_ms)
        in_flight = JobsInFlight()
        self._outcome_writer = OutcomeWriter(owners, self.table, in_flight, self.now)
        self._dispatcher = JobDispatcher(
            owners, self.table, self._outcome_writer, in_flight, self.now, self._sweeps.hint
        )
        self._reporter = OutcomeReports(self.table, self._outcome_writer, self.now, terms.output_bytes_max)
        self._reconciler = LeaseReconciler(owners, self.table, self.now)
        self._sweeper = Sweeper(owners, self._outcome_writer, self._dispatcher, in_flight)
        self._heartbeats = Heartbeats(self.table, self._outcome_writer, self._reconciler, self.now, self._see_to_leases)

    def now(self) -> Now:
        """Returns the current time; the time between two calls counts as served, up to a maximum."""
        return self._time.now()

    # -- calls of workers

    async def hear(self, worker: str, request: pb.WorkerHeartbeatRequest) -> HeartbeatReply:
        """Handles a heartbeat."""
        self._refuse_if_superseded(worker, request)
        self._registry.hear(worker, self.now().served_ms).slots = request.capacity_hint
        heard = await self._to_its_end(self._heartbeats.hear(worker, request))
        if request.is_leaving:
            self._registry.forget(worker)
            self._incarnations.pop(worker, None)
        return heard

    def _refuse_if_superseded(self, worker: str, request: pb.WorkerHeartbeatRequest) -> None:
        """Raises `AbortedError` for the older of two sessions of a worker id: each would revoke the other's leases."""
        mine = request.incarnation
        if not mine:
            return  # the worker knows only the frozen fields
        known = self._incarnations.get(worker)
        if known in {None, mine} or request.is_arriving:
            self._incarnations[worker] = mine
            return
        get_logger().warning("worker_superseded", worker_id=worker, message="two workers have this id")
        raise AbortedError(
            f"a newer worker called {worker!r} took over; give every worker an id of its own (WORKER_ID)",
            reason="WORKER_SUPERSEDED",
        )

    async def fetch(self, worker: str, wanted: pb.Wanted) -> pb.FetchWorkResponse:
        """Grants one job, or returns when to fetch again."""
        self._registry.hear(worker, self.now().served_ms)
        task = self._spawn(self._dispatcher.fetch(worker, wanted))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._undelivered)
            raise

    async def report(self, worker: str, row: ReportRow) -> str:
        """Applies a report; returns an empty string if it counts, or the reason why it does not."""
        self._registry.hear(worker, self.now().served_ms)
        return await self._to_its_end(self._reporter.report(worker, row))

    def _undelivered(self, task: "asyncio.Task[pb.FetchWorkResponse]") -> None:
        if not task.cancelled() and task.exception() is None:
            self._dispatcher.undelivered(task.result())

    async def _to_its_end(self, protocol: Coroutine[object, object, Answer]) -> Answer:
        """Finishes steps that have begun, even if the caller no longer waits for the response."""
        return await asyncio.shield(self._spawn(protocol))

    def _spawn(self, work: Coroutine[object, object, Answer]) -> "asyncio.Task[Answer]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Answer]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # raised in the waiting caller; retrieved here so that asyncio does not log it

    # -- ticks

    async def run(self) -> None:
        """Ticks at an interval until it is canceled."""
        tick_ms = max(_TICK_MS_MIN, min(_TICK_MS_MAX, self.terms.worker_timeout_ms // 4))
        while True:
            self.tick()
            await asyncio.sleep(tick_ms / 1_000)

    def tick(self) -> None:
        """Starts the tasks that are due; `settled` waits for them."""
        now = self.now()
        self.table.expire(now)
        self._see_to_leases()
        for worker in self._registry.forget_silent(now.served_ms):
            self._incarnations.pop(worker, None)
            get_logger().warning("worker_silent", worker_id=worker, message="considered lost after missed heartbeats")
        for job_id in list(self._dispatcher.strays):
            self._begin(f"stray {job_id}", self._dispatcher.look_after, job_id)
        if self._round_ms is None or now.served_ms - self._round_ms >= self.terms.heartbeat_ms:
            self._round_ms = now.served_ms
            self._begin("round", self._reconciler.fresh)
        if self._sweeps.is_due(now):
            self._begin("sweep", self._sweep)

    async def _sweep(self) -> None:
        repaired = False
        try:
            repaired = await self._sweeper.go()
        finally:
            self._sweeps.went(self.now(), repaired=repaired)

    def _see_to_leases(self) -> Iterable["asyncio.Task[None]"]:
        """Starts to end expired leases, unless that is in progress, or too soon after a failure."""
        served_ms = self.now().served_ms
        for lease in self.table.over():
            if lease.retry_ms <= served_ms and not lease.lock.locked():
                self._begin(f"lease {lease.job_id}", self._outcome_writer.take_back, lease)
        return [task for name, task in self._background.items() if name.startswith("lease ")]

    def _begin(self, name: str, work: Work, *arguments: object) -> None:
        """Starts a background task, unless one with this name is running."""
        if name not in self._background:
            self._background[name] = self._spawn(self._watched(name, work, *arguments))

    async def _watched(self, name: str, work: Work, *arguments: object) -> None:
        kind = name.split(maxsplit=1)[0]
        try:
            await work(*arguments)
            if kind in self._failing:
                self._failing.discard(kind)
                get_logger().info("works_again", method=kind)
        except HoldfastError as error:
            if kind not in self._failing:  # one log line per outage
                self._failing.add(kind)
                get_logger().warning("fails", method=kind, grpc_code=error.code.value, message=error.message)
        except Exception as error:  # noqa: BLE001 - other tasks must continue
            get_logger().error("bug", method=kind, exc_info=error)
        finally:
            del self._background[name]

    async def settled(self) -> None:
        """Waits until all tasks have ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def stop(self) -> None:
        """Cancels all tasks; the next process finds and finishes their work."""
        tasks = [*self._tasks, *self._reconciler.tasks()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class CoordinatorServicer(rpc.CoordinatorInternalServiceServicer):
    """The three methods for workers, which docs/contract.md defines."""

    def __init__(self, coordinator: WorkCoordinator) -> None:
        self._coordinator = coordinator

    @answered
    async def WorkerHeartbeat(self, request: pb.WorkerHeartbeatRequest, context: Context) -> pb.WorkerHeartbeatResponse:
        """Handles a heartbeat; returns the jobs to stop and the revoked leases."""
        heard = await self._coordinator.hear(checked_worker(request.worker_id), request)
        return heard_message(request, heard, self._coordinator.terms)

    @answered
    async def FetchWork(self, request: pb.FetchWorkRequest, context: Context) -> pb.FetchWorkResponse:
        """Grants one job, or returns when to fetch again."""
        return await self._coordinator.fetch(checked_worker(request.worker_id), wanted_of(request))

    @answered
    async def ReportWorkOutcome(
        self, request: pb.ReportWorkOutcomeRequest, context: Context
    ) -> pb.ReportWorkOutcomeResponse:
        """Handles the outcome of an attempt; not accepted, without an error, if it does not count."""
        row = report_row(request)
        reason = await self._coordinator.report(checked_worker(request.worker_id), row)
        return pb.ReportWorkOutcomeResponse(accepted=not reason, reason=reason)


def heard_message(
    request: pb.WorkerHeartbeatRequest, heard: HeartbeatReply, terms: WorkTerms
) -> pb.WorkerHeartbeatResponse:
    """Builds the response to a heartbeat; a caller that uses the added fields also gets the lease length."""
    is_frozen = not (request.HasField("running") or request.released or request.is_arriving or request.is_leaving)
    return pb.WorkerHeartbeatResponse(
        accepted=True,
        next_heartbeat_in_ms=beat_ms(terms.heartbeat_ms, terms.worker_timeout_ms),
        cancel=heard.cancels,
        revoked=[pb.RunningJob(job_id=job_id, token=token) for job_id, token in heard.revoked],
        lease_ms=0 if is_frozen else terms.worker_timeout_ms,
    )


class CoordinatorRole:
    """The coordinator service in its process: it calls the owners, and stores nothing."""

    def __init__(self, environment: CoordinatorEnvironment, fatal: Fatal) -> None:
        self._port = environment.port
        self._fatal = fatal
        self._owners = Owners(
            job=open_channel(environment.job_address),
            queue=open_channel(environment.queue_address),
            result=open_channel(environment.result_address),
            metadata=credential(environment.token),
            timeout_ms=environment.internal_timeout_ms,
        )
        terms = WorkTerms(heartbeat_ms=environment.heartbeat_ms, worker_timeout_ms=environment.worker_timeout_ms)
        self._coordinator = WorkCoordinator(self._owners, terms, system_clock())
        self._server = ServiceServer(full_name("CoordinatorInternalService"), hashes_of(environment))
        rpc.add_CoordinatorInternalServiceServicer_to_server(
            CoordinatorServicer(self._coordinator), self._server.handlers
        )
        self._running: asyncio.Task[None] | None = None

    async def start(self, host: str) -> str:
        """Listens, even if the owners are unreachable."""
        address = await self._server.start(host, self._port)
        self._running = asyncio.create_task(self._coordinator.run())
        self._running.add_done_callback(self._ended)
        return address

    def give_up(self) -> None:
        """Does nothing: a start takes no time."""

    def _ended(self, running: "asyncio.Task[None]") -> None:
        """Calls `fatal` if the ticks have failed: without them leases would never expire."""
        if not running.cancelled() and (error := running.exception()) is not None:
            self._fatal(error)

    async def stop(self) -> None:
        """Answers calls in progress; the next process finishes the other tasks."""
        await self._server.stop(GRACE_S)
        if self._running is not None:
            self._running.cancel()
        await self._coordinator.stop()
        await self._owners.close()
