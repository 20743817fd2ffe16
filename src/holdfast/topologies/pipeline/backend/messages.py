"""Messages between the roles of the pipeline, except calls of ports.

Every field has a default, so that a request may have no body. Requests are JSON or MessagePack; responses are JSON,
which is readable with curl.
"""

from typing import Any, Literal

import msgspec

from holdfast import limits
from holdfast.errors import InvalidArgumentError
from holdfast.topologies.pipeline.backend.store import FullLane, Number, Ticket
from holdfast.topologies.pipeline.roles.ticket_store import Lane

#: Visibility timeout: how long a claimed row or a taken ticket is hidden from others.
VISIBILITY_MS = 30_000
#: The longest wait of a long poll: well below the idle timeout of a connection.
WAIT_MS_MAX = 20_000


#: Values of `type` in the short form of a submission that say when a job runs, and are not a job type.
_WHEN = ("once", "cron")
_PRIORITIES = {"low": 2, "normal": limits.PRIORITY_DEFAULT, "high": 8}


class _Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


# -- exchanges and queue processes


class PushTickets(_Request, frozen=True):
    """Tickets, or one ticket by its fields: `type` is an alias of `route`; a payload is ignored, the row has it."""

    jobs: list[Ticket] = []
    #: How long the queue process keeps them; 0: until they are deleted.
    keep_ms: Number = 0
    job_id: str = ""
    type: str = ""
    job_type: str = "echo"
    route: str = ""
    queue: str = limits.QUEUE_DEFAULT
    priority: Number | Literal["low", "normal", "high"] = limits.PRIORITY_DEFAULT
    number: Number = 0
    deliveries: Number = 1
    due_ms: Number = 0
    payload: Any = None

    def tickets(self) -> list[Ticket]:
        """Returns all tickets of the request. Raises `InvalidArgumentError` if one lacks a job id, type or queue."""
        tickets = self.jobs
        route = self.route or (self.job_type if self.type in _WHEN else self.type)
        if self.job_id or route:
            priority = _PRIORITIES[self.priority] if isinstance(self.priority, str) else self.priority
            one = Ticket(self.job_id, route, self.queue, priority, self.number, self.deliveries, self.due_ms)
            tickets = [*tickets, one]
        for ticket in tickets:
            if not ticket.job_id or not ticket.route or not ticket.queue:
                message = "every ticket must have a job_id, a type and a queue"
                raise InvalidArgumentError(message, reason="TICKET_INVALID")
        return tickets


class PushReply(msgspec.Struct, frozen=True):
    """The reply of a queue process to pushed tickets; tickets that it already has count as accepted."""

    accepted: int = 0
    #: Jobs that were refused because their lane is full.
    full: list[str] = []
    #: Other lanes that want no more tickets for now.
    crowded: list[Lane] = []


class TakeRequest(_Request, frozen=True):
    """A request for tickets of these types and queues, or of any; waits up to `wait_ms` for them."""

    worker_id: str = ""
    types: list[str] = []
    queues: list[str] = []
    count: Number = 1
    wait_ms: Number = 0
    visibility_ms: Number = VISIBILITY_MS


class TakenTickets(msgspec.Struct, frozen=True):
    """Tickets that are hidden from other workers until their visibility timeout ends."""

    jobs: list[Ticket] = []


class TicketIds(_Request, frozen=True):
    """Tickets by the ids of their jobs; with `worker_id`, only those that this worker has."""

    job_id: str = ""
    job_ids: list[str] = []
    worker_id: str = ""

    def ids(self) -> list[str]:
        """Returns all ids of the request."""
        return [*self.job_ids, self.job_id] if self.job_id else self.job_ids


class LaneList(_Request, frozen=True):
    """Lanes, each a queue and a type."""

    lanes: list[Lane] = []


class FullLanesReply(_Request, frozen=True):
    """Lanes, each with its kind of priority (high or normal)."""

    lanes: list[FullLane] = []


class LaneCapacities(msgspec.Struct, frozen=True):
    """The free capacity of each lane of the request."""

    rooms: list[int] = []


class RoutedTickets(msgspec.Struct, frozen=True):
    """The reply of an exchange to tickets; jobs in neither list were accepted."""

    taken: int = 0
    #: Jobs whose queue process is unavailable.
    away: list[str] = []
    #: Jobs whose lane is full, and lanes that are full or want no more tickets for now.
    full: list[str] = []
    lanes: list[FullLane] = []


# -- the coordinator


class AssignmentRequest(_Request, frozen=True):
    """A worker's request for queue processes; `session` distinguishes it from others of the same name."""

    worker_id: str = ""
    session: str = ""
    types: list[str] = []
    queues: list[str] = []
    slots: Number = 1


class HeartbeatRequest(_Request, frozen=True):
    """A heartbeat of a worker that knows this version of its queue processes; waits up to `wait_ms` for a newer one."""

    worker_id: str = ""
    session: str = ""
    version: Number = 0
    running: Number = 0
    wait_ms: Number = 0
    is_draining: bool = False


class PresenceRequest(_Request, frozen=True):
    """A worker's request for a connection that stays open while its process lives."""

    worker_id: str = ""
    session: str = ""


class LeaveRequest(_Request, frozen=True):
    """The goodbye of a worker."""

    worker_id: str = ""
    session: str = ""


#: The worker has its queue processes.
ASSIGNED = "assigned"
#: No worker of this name is known: it must request an assignment.
UNKNOWN = "unknown"
#: Another session of the worker has replaced this one.
REPLACED = "replaced"
#: The request has no worker id.
NO_WORKER_ID = "nobody"
#: The worker has left.
RELEASED = "released"


class AssignmentReply(msgspec.Struct, frozen=True, kw_only=True):
    """The queue processes of a worker; the version changes whenever they do."""

    status: str
    high: list[str] = []
    normal: list[str] = []
    version: int = 0
    drain: bool = False
    heartbeat_ms: int = 0
    message: str = ""
