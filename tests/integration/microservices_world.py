"""The owners of design A on real gRPC servers in one process, a coordinator that can die, and calls that can fail.

The owners and the coordinator share one clock, which moves only when a test moves it; that of the job service may have
an offset.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from enum import Enum
from typing import Any

import grpc
import structlog

from holdfast import limits
from holdfast.core.lifecycle import TERMINAL, State
from holdfast.core.model import SIM_TYPE, Template
from holdfast.ledger.command_clock import STALL_MS
from holdfast.ports import JobDraft
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.server.grpc.internal_messages import report_row
from holdfast.testing.clock import ManualClock
from holdfast.topologies.microservices.backend.job_api import ServiceJobs
from holdfast.topologies.microservices.backend.owner_clients import Owners
from holdfast.topologies.microservices.services.coordinator_service import WorkCoordinator, WorkTerms, heard_message
from holdfast.topologies.microservices.services.job_service import JobService
from holdfast.topologies.microservices.services.queue_service import QueueService
from holdfast.topologies.microservices.services.result_service import ResultService
from holdfast.topologies.microservices.state import envelopes, records, waiting_jobs
from tests.unit.topologies.microservices.owner_server import DEADLINE_MS, DEADLINE_S, patient, served

WORKER = "w"


class Fault(Enum):
    """The possible faults of one call of the coordinator."""

    LOST_BEFORE = "it does not arrive"
    LOST_AFTER = "its answer does not arrive"
    DEAD_BEFORE = "the process ends before it is sent"
    DEAD_AFTER = "the process ends before the answer arrives"


class Faults:
    """Sits between the coordinator and the owners: counts the calls and makes some of them fail."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        #: The fault of a call, by its number from 1, its method and its request.
        self.rule: Callable[[int, str, Any], Fault | None] = lambda _number, _method, _request: None
        #: Runs before a call is sent; the call waits for it.
        self.before: Callable[[str, Any], Awaitable[None]] | None = None
        #: Runs when a call has taken effect; its response waits for it.
        self.after: Callable[[str, Any], Awaitable[None]] | None = None
        self.death = asyncio.Event()

    def reset(self) -> None:
        """Restarts the count; every call succeeds from now on."""
        self.__init__()  # type: ignore[misc]  # as new

    def down(self, *services: str) -> None:
        """Makes every call to these services fail."""
        methods = {method for service in services for method in _METHODS[service]}
        self.rule = lambda _number, method, _request: Fault.LOST_BEFORE if method in methods else None

    async def send(self, method: str, request: object, call: Callable[[], Awaitable[Any]]) -> object:
        """Sends one call with its fault."""
        self.calls.append(method)
        fault = self.rule(len(self.calls), method, request)
        if self.before is not None:
            await self.before(method, request)
        if fault is Fault.LOST_BEFORE:
            raise _broken(grpc.StatusCode.UNAVAILABLE)
        if fault is Fault.DEAD_BEFORE:
            await self._die()
        answer = await call()
        if self.after is not None:
            await self.after(method, answer)
        if fault is Fault.DEAD_AFTER:
            await self._die()
        if fault is Fault.LOST_AFTER:
            raise _broken(grpc.StatusCode.DEADLINE_EXCEEDED)
        return answer

    async def _die(self) -> None:
        self.death.set()
        await asyncio.Event().wait()


def _broken(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "lost", None)


_METHODS = {
    name: set(pb.DESCRIPTOR.services_by_name[f"{name.capitalize()}InternalService"].methods_by_name)
    for name in ("job", "queue", "result")
}


class FaultyChannel:
    """A channel whose calls go through `Faults`, with the methods that stubs use."""

    def __init__(self, channel: grpc.aio.Channel, faults: Faults) -> None:
        self._channel = channel
        self._faults = faults

    def unary_unary(self, path: str, *codecs: Any, **options: Any) -> Callable[..., Awaitable[Any]]:  # noqa: ANN401
        """The same call, with faults."""
        real: Any = self._channel.unary_unary(path, *codecs, **options)
        method = path.rpartition("/")[2]

        async def call(request: object, **terms: object) -> object:
            terms["timeout"] = DEADLINE_S  # only a test's fault makes a call late
            return await self._faults.send(method, request, lambda: real(request, **terms))

        return call


class World:
    """Three owners, their clients, and the current coordinator."""

    def __init__(
        self, channels: dict[str, grpc.aio.Channel], clock: ManualClock, waiting: waiting_jobs.WaitingJobs
    ) -> None:
        self.clock = clock
        self.faults = Faults()
        self.line = waiting
        self.jobs = ServiceJobs(
            Owners(job=channels["job"], queue=channels["queue"], result=channels["result"], timeout_ms=DEADLINE_MS),
            clock.wall_ms,
        )
        self.job: Any = rpc.JobInternalServiceStub(channels["job"])
        self.queue: Any = rpc.QueueInternalServiceStub(channels["queue"])
        self.results: Any = rpc.ResultInternalServiceStub(channels["result"])
        faulty: dict[str, Any] = {name: FaultyChannel(channel, self.faults) for name, channel in channels.items()}
        self._owners = Owners(**faulty)
        self.terms = WorkTerms()
        self.log: list[Any] = []
        self.coordinator = WorkCoordinator(self._owners, self.terms, clock)

    # -- clients

    async def submit(self, type_: str = SIM_TYPE, **options: Any) -> str:  # noqa: ANN401 - those of a template
        """Submits one job and returns its id."""
        options = {"simulated": type_ == SIM_TYPE} | options
        draft = JobDraft(0, b"payload", options.pop("delay_ms", 0))
        return (await self.jobs.submit([Template(type_, **options)], [draft])).job_ids[0]

    async def record(self, job_id: str) -> pb.GetJobRecordResponse:
        """The record of the job service."""
        record: pb.GetJobRecordResponse = await self.job.GetJobRecord(pb.GetJobRecordRequest(job_id=job_id))
        return record

    async def state(self, job_id: str) -> State:
        """The job's state."""
        return State((await self.record(job_id)).summary.status)

    async def result(self, job_id: str) -> pb.GetResultResponse:
        """The job's envelope."""
        result: pb.GetResultResponse = await self.results.GetResult(pb.GetResultRequest(job_id=job_id))
        return result

    async def check_ended(self, *job_ids: str) -> None:
        """Checks that each job has ended once, has an envelope of the same state, and is in no queue."""
        for job_id in job_ids:
            state, result = await self.state(job_id), await self.result(job_id)
            assert state in TERMINAL
            assert (result.found, int(result.terminal_status)) == (True, int(state))

    # -- a worker

    async def fetch(self, worker: str = WORKER, *routes: str) -> pb.FetchWorkResponse:
        """Fetches work as the worker."""
        return await self.coordinator.fetch(worker, pb.Wanted(routes=routes or [SIM_TYPE]))

    async def take(self, worker: str = WORKER) -> pb.FetchWorkResponse:
        """Fetches a job as the worker; fails if there is none."""
        work = await self.fetch(worker)
        assert work.assigned
        return work

    async def report(
        self,
        work: pb.FetchWorkResponse,
        outcome: public_pb.JobOutcome = public_pb.JOB_OUTCOME_SUCCEEDED,
        *,
        worker: str = WORKER,
        **fields: Any,  # noqa: ANN401 - those of the message
    ) -> str:
        """Reports an outcome and returns the reason of the refusal, or an empty string."""
        request = pb.ReportWorkOutcomeRequest(job_id=work.job_id, outcome=outcome, **({"token": work.token} | fields))
        return await self.coordinator.report(worker, report_row(request))

    async def beat(
        self,
        *running: pb.FetchWorkResponse,
        worker: str = WORKER,
        released: tuple[pb.FetchWorkResponse, ...] = (),
        **fields: Any,  # noqa: ANN401 - those of the message
    ) -> pb.WorkerHeartbeatResponse:
        """Sends a heartbeat that names the worker's jobs."""
        return await self._beat(
            pb.WorkerHeartbeatRequest(
                worker_id=worker, running=pb.RunningJobs(jobs=_named(running)), released=_named(released), **fields
            )
        )

    async def bare_beat(self, worker: str = WORKER) -> pb.WorkerHeartbeatResponse:
        """Sends a heartbeat of a worker that knows only the frozen fields."""
        return await self._beat(pb.WorkerHeartbeatRequest(worker_id=worker, capacity_hint=1))

    async def _beat(self, request: pb.WorkerHeartbeatRequest) -> pb.WorkerHeartbeatResponse:
        return heard_message(request, await self.coordinator.hear(request.worker_id, request), self.terms)

    # -- the clock and kills

    async def pass_time(self, ms: int, *running: pb.FetchWorkResponse) -> None:
        """Moves the clock; the worker sends a heartbeat every second for its running jobs."""
        for at_ms in range(0, ms, STALL_MS):
            self.clock.advance(min(STALL_MS, ms - at_ms) / 1_000)
            if running and at_ms % 1_000 == 0:
                await self.beat(*running)
            self.coordinator.tick()
            await self.coordinator.settled()

    async def kill(self) -> None:
        """Ends the coordinator at its current step and starts another one."""
        await self.coordinator.stop()
        self.faults.reset()
        self.coordinator = WorkCoordinator(self._owners, self.terms, self.clock)

    def replace(self) -> WorkCoordinator:
        """Starts another coordinator while the old one stays alive, and returns the old one."""
        old, self.coordinator = self.coordinator, WorkCoordinator(self._owners, self.terms, self.clock)
        return old

    async def until_death(self, steps: Awaitable[object]) -> bool:
        """Runs steps until the coordinator dies or they end; returns whether it died."""
        task, death = asyncio.ensure_future(steps), asyncio.ensure_future(self.faults.death.wait())
        await asyncio.wait([task, death], return_when=asyncio.FIRST_COMPLETED)
        is_dead = self.faults.death.is_set()
        for left in (task, death):
            left.cancel()
        results = await asyncio.gather(task, death, return_exceptions=True)
        if not is_dead and isinstance(results[0], Exception):
            raise results[0]
        return is_dead

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The log lines of one event so far."""
        return [entry for entry in self.log if entry["event"] == event]


def _named(works: tuple[pb.FetchWorkResponse, ...]) -> list[pb.RunningJob]:
    return [pb.RunningJob(job_id=work.job_id, token=work.token) for work in works]


class OffsetClock(ManualClock):
    """Another clock by some time, which moves with it."""

    def __init__(self, clock: ManualClock, offset_ms: int) -> None:
        super().__init__()
        self._base, self._offset_ms = clock, offset_ms

    def wall_ms(self) -> int:
        return self._base.wall_ms() + self._offset_ms

    def steady_ms(self) -> int:
        return self._base.steady_ms()


@asynccontextmanager
async def world(
    output_bytes_max: int = limits.OUTPUT_BYTES_MAX, *, job_clock_offset_ms: int = 0
) -> AsyncIterator[World]:
    """A world that serves until the block ends; the clock of its job service may differ from the others."""
    clock = ManualClock()
    jobs, waiting, ends = (
        records.Records(),
        waiting_jobs.WaitingJobs(60_000),
        envelopes.Envelopes(envelopes.EnvelopeRetention.beyond()),
    )
    async with AsyncExitStack() as stack:
        logs = stack.enter_context(structlog.testing.capture_logs())
        stack.enter_context(patient())
        owners = {
            "job": served(
                jobs,
                lambda state_owner, to: rpc.add_JobInternalServiceServicer_to_server(JobService(state_owner, jobs), to),
                None,
                clock=OffsetClock(clock, job_clock_offset_ms),
            ),
            "queue": served(
                waiting,
                lambda state_owner, to: rpc.add_QueueInternalServiceServicer_to_server(
                    QueueService(state_owner, waiting), to
                ),
                None,
                clock=clock,
            ),
            "result": served(
                ends,
                lambda state_owner, to: rpc.add_ResultInternalServiceServicer_to_server(
                    ResultService(state_owner, ends, output_bytes_max=output_bytes_max), to
                ),
                None,
                clock=clock,
            ),
        }
        channels = {name: (await stack.enter_async_context(owner)).channel for name, owner in owners.items()}
        made = World(channels, clock, waiting)
        made.log = logs
        try:
            yield made
        finally:
            await made.coordinator.stop()
