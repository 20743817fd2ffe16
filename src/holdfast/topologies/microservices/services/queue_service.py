"""The queue service: stores the waiting jobs, and nothing else.

`callers` has authorized each call.

Invariants: a reply is sent when its change is durable; a dequeued or removed job is gone at once, and returns only if a
caller enqueues it again. A caller that knows only the frozen fields enqueues simulated jobs in the default queue, and
dequeues the next job of any kind.
"""

from pathlib import Path

import msgspec

from holdfast import limits
from holdfast.core.commands import Refusal
from holdfast.core.lane_order import RouteFilter
from holdfast.core.model import SIM_TYPE
from holdfast.errors import InvalidArgumentError
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc
from holdfast.server.grpc.status import Context, answered
from holdfast.server.request_checks import checked_id, checked_name, checked_new_id
from holdfast.topologies.microservices.services.environment import QueueEnvironment, hashes_of
from holdfast.topologies.microservices.services.internal_server import ServiceServer
from holdfast.topologies.microservices.services.owner import OwnerDecision, StateOwner
from holdfast.topologies.microservices.services.roles import Host, OwnerService, Service, full_name, opened
from holdfast.topologies.microservices.state.waiting_jobs import WaitingJobs, WaitingTicket


class QueueService(rpc.QueueInternalServiceServicer):
    """The three methods on waiting jobs, which docs/contract.md defines."""

    def __init__(self, state_owner: StateOwner, line: WaitingJobs) -> None:
        """`keeper` must be that of this line."""
        self._state_owner = state_owner
        self._line = line

    @answered
    async def EnqueueJob(self, request: pb.EnqueueJobRequest, context: Context) -> pb.EnqueueJobResponse:
        """Enqueues a job; a job that waits already is unchanged."""
        ticket = ticket_of(request)
        _checked_time("now_ms", request.now_ms)

        def decide(now_ms: int) -> OwnerDecision | Refusal:
            event = self._line.decide_enqueue(_by_this_clock(ticket, request.now_ms, now_ms), now_ms)
            if isinstance(event, Refusal):
                return event
            return OwnerDecision(event, pb.EnqueueJobResponse(accepted=True, existing=event is None))

        reply: pb.EnqueueJobResponse = await self._state_owner.act(decide)
        return reply

    @answered
    async def DequeueJob(self, request: pb.DequeueJobRequest, context: Context) -> pb.DequeueJobResponse:
        """Removes and returns the next matching job; not found, without an error, if there is none."""
        worker = checked_name("worker_id", request.worker_id, reason="WORKER_ID_INVALID")
        wanted = wanted_of(request.wanted) if request.HasField("wanted") else None

        def decide(now_ms: int) -> OwnerDecision:
            event = self._line.decide_dequeue(worker, wanted, now_ms)
            return OwnerDecision(event, pb.DequeueJobResponse(found=bool(event), job_id=event.job_id if event else ""))

        reply: pb.DequeueJobResponse = await self._state_owner.act(decide)
        return reply

    @answered
    async def RemoveJobIfPresent(
        self, request: pb.RemoveJobIfPresentRequest, context: Context
    ) -> pb.RemoveJobIfPresentResponse:
        """Removes one job, and returns whether it was waiting."""
        job_id = checked_id(request.job_id)

        def decide(now_ms: int) -> OwnerDecision:
            event = self._line.decide_remove(job_id, now_ms)
            return OwnerDecision(event, pb.RemoveJobIfPresentResponse(removed=event is not None))

        reply: pb.RemoveJobIfPresentResponse = await self._state_owner.act(decide)
        return reply


def ticket_of(request: pb.EnqueueJobRequest) -> WaitingTicket:
    """Returns the validated ticket of a job to enqueue."""
    priority = request.priority if request.HasField("priority") else limits.PRIORITY_DEFAULT
    if not limits.PRIORITY_MIN <= priority <= limits.PRIORITY_MAX:
        rule = f"from {limits.PRIORITY_MIN} to {limits.PRIORITY_MAX}"
        raise InvalidArgumentError(f"priority must be {rule}, got {priority}", reason="OPTION_OUT_OF_RANGE")
    return WaitingTicket(
        checked_new_id(request.job_id),
        checked_name("queue", request.queue or limits.QUEUE_DEFAULT, reason="QUEUE_NAME_INVALID"),
        checked_name("route", request.route or SIM_TYPE, reason="ROUTE_INVALID"),
        priority,
        request.order,
        _checked_time("not_before_ms", request.not_before_ms),
        _checked_time("enqueued_at_ms", request.enqueued_at_ms),
    )


def _by_this_clock(ticket: WaitingTicket, told_ms: int, now_ms: int) -> WaitingTicket:
    """Converts the due time from the job service's clock, which showed `told_ms`, to the clock of this service."""
    if not told_ms or not ticket.not_before_ms:
        return ticket
    wait_ms = ticket.not_before_ms - told_ms
    return msgspec.structs.replace(ticket, not_before_ms=now_ms + wait_ms if wait_ms > 0 else 0)


def _checked_time(what: str, at_ms: int) -> int:
    if at_ms < 0:
        message = f"{what} must be milliseconds since 1970, got {at_ms}"
        raise InvalidArgumentError(message, reason="OPTION_OUT_OF_RANGE")
    return at_ms


def wanted_of(wanted: pb.Wanted) -> RouteFilter:
    """Returns the validated routes and queues of a worker; nothing without a route."""
    if len(wanted.routes) * max(1, len(wanted.queues)) > limits.LANES_MAX:
        raise InvalidArgumentError(
            f"routes times queues must be at most {limits.LANES_MAX},"
            f" got {len(wanted.routes)} routes and {len(wanted.queues)} queues; name no queue to serve all of them",
            reason="WANTED_TOO_LARGE",
        )
    routes = frozenset(checked_name("route", name, reason="ROUTE_INVALID") for name in wanted.routes)
    queues = frozenset(checked_name("queue", name, reason="QUEUE_NAME_INVALID") for name in wanted.queues)
    return RouteFilter(routes, queues)


def open_queue(environment: QueueEnvironment, data: Path | None, host: Host) -> Service:
    """Opens the queue service: the jobs that wait."""
    machine = WaitingJobs(limits.AGING_MS_DEFAULT)
    state_owner = opened(machine, data and data / "queue", host, environment)
    server = ServiceServer(full_name("QueueInternalService"), hashes_of(environment))
    rpc.add_QueueInternalServiceServicer_to_server(QueueService(state_owner, machine), server.handlers)
    return OwnerService(server, environment.port, state_owner)
