"""How a worker takes part in the pipeline, and what it has done there."""

from dataclasses import dataclass, field

import msgspec

from holdfast import limits


class WorkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where a worker's coordinator is (`host:port`), and how long its leases last."""

    coordinator: str
    lease_ms: int = limits.LEASE_MS_DEFAULT
    heartbeat_ms: int = limits.HEARTBEAT_MS


@dataclass(slots=True)
class WorkStats:
    """Counted over all sessions of a process; `queues` are those of the present one."""

    queues: list[str] = field(default_factory=list)
    #: Tickets that came, jobs that were started by them, and tickets that were of no use.
    tickets: int = 0
    started: int = 0
    dropped: int = 0
    #: Outcomes that counted, and those that did not.
    reported: int = 0
    refused: int = 0

    def leave(self) -> None:
        """A session is over."""
        self.queues = []
