"""What roles of the pipeline say to each other, apart from calls of ports.

Every field has a default, so that a request without a body is one that names nothing; and an answer is readable for
whoever asks with curl. Requests travel as JSON or MessagePack, answers as JSON.
"""

from typing import Any, Literal

import msgspec

from holdfast import limits
from holdfast.errors import InvalidArgumentError
from holdfast.topologies.pipeline.backend.store import FullLane, Number, Ticket
from holdfast.topologies.pipeline.roles.shelf import Lane

#: How long a row or a ticket is out of sight for others while somebody has it.
VISIBILITY_MS = 30_000
#: How long one question may be kept waiting for its answer: well under what a connection may be silent for.
WAIT_MS_MAX = 20_000


#: A job pushed in the words in which jobs are submitted: these say when it runs, and not what.
_WHEN = ("once", "cron")
_PRIORITIES = {"low": 2, "normal": limits.PRIORITY_DEFAULT, "high": 8}


class _Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


# -- exchanges and queue processes


class PushTickets(_Request, frozen=True):
    """Tickets, or one by its fields: `type` says the same as `route`; a payload is left aside, as the row has it."""

    jobs: list[Ticket] = []
    #: How long they are worth keeping; 0: until they are deleted.
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
        """All that are named, one way or the other; `InvalidArgumentError` for one that nobody could run."""
        tickets = self.jobs
        route = self.route or (self.job_type if self.type in _WHEN else self.type)
        if self.job_id or route:
            priority = _PRIORITIES[self.priority] if isinstance(self.priority, str) else self.priority
            one = Ticket(self.job_id, route, self.queue, priority, self.number, self.deliveries, self.due_ms)
            tickets = [*tickets, one]
        for ticket in tickets:
            if not ticket.job_id or not ticket.route or not ticket.queue:
                message = "expected every ticket to name a job_id, a type and a queue"
                raise InvalidArgumentError(message, reason="TICKET_INVALID")
        return tickets


class ShelvedReply(msgspec.Struct, frozen=True):
    """What a queue process did with tickets: those that it knew before are accepted, too."""

    accepted: int = 0
    #: Jobs whose lane is full here.
    full: list[str] = []
    #: Other lanes that have enough for now.
    crowded: list[Lane] = []


class Take(_Request, frozen=True):
    """Some tickets of these types and queues, any if none is named; wait for them so long."""

    worker_id: str = ""
    types: list[str] = []
    queues: list[str] = []
    count: Number = 1
    wait_ms: Number = 0
    visibility_ms: Number = VISIBILITY_MS


class TakenTickets(msgspec.Struct, frozen=True):
    """Tickets that are nobody else's for a while."""

    jobs: list[Ticket] = []


class Named(_Request, frozen=True):
    """Tickets by the ids of their jobs; a worker's name: only what that worker has."""

    job_id: str = ""
    job_ids: list[str] = []
    worker_id: str = ""

    def ids(self) -> list[str]:
        """All that are named."""
        return [*self.job_ids, self.job_id] if self.job_id else self.job_ids


class Lanes(_Request, frozen=True):
    """Lanes, each a queue and a type."""

    lanes: list[Lane] = []


class FullLanesReply(_Request, frozen=True):
    """Lanes, each with the kind of its priority."""

    lanes: list[FullLane] = []


class Rooms(msgspec.Struct, frozen=True):
    """How many more tickets there is room for, of each lane that was asked for."""

    rooms: list[int] = []


class RoutedTickets(msgspec.Struct, frozen=True):
    """What an exchange could do with tickets: who is in neither list was taken."""

    taken: int = 0
    #: Jobs whose queue process is away.
    away: list[str] = []
    #: Jobs whose lane is full, and lanes that are, or have enough for now.
    full: list[str] = []
    lanes: list[FullLane] = []


# -- the coordinator


class Asking(_Request, frozen=True):
    """A worker that asks for queue processes; `session` tells it from another one of the same name."""

    worker_id: str = ""
    session: str = ""
    types: list[str] = []
    queues: list[str] = []
    slots: Number = 1


class Beat(_Request, frozen=True):
    """A worker lives, knows this version of its queue processes, and waits so long to hear of another."""

    worker_id: str = ""
    session: str = ""
    version: Number = 0
    running: Number = 0
    wait_ms: Number = 0
    is_draining: bool = False


class Present(_Request, frozen=True):
    """A worker that keeps a connection open for as long as its process lives."""

    worker_id: str = ""
    session: str = ""


class Leaving(_Request, frozen=True):
    """A worker goes."""

    worker_id: str = ""
    session: str = ""


#: The worker has its queue processes.
ASSIGNED = "assigned"
#: Nobody of this name is known: ask for an assignment.
UNKNOWN = "unknown"
#: Another session goes on under this name.
REPLACED = "replaced"
#: No worker was named.
NOBODY = "nobody"
#: It is gone.
RELEASED = "released"


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """Where a worker takes its tickets from; whenever that changes, the version does."""

    status: str
    high: list[str] = []
    normal: list[str] = []
    version: int = 0
    drain: bool = False
    heartbeat_ms: int = 0
    message: str = ""
