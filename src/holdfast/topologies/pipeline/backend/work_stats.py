"""Configuration and counters of a worker in the pipeline."""

from dataclasses import dataclass, field

import msgspec

from holdfast import limits


class WorkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a worker's coordinator (`host:port`), and the length of its leases and heartbeat interval."""

    coordinator: str
    lease_ms: int = limits.LEASE_MS_DEFAULT
    heartbeat_ms: int = limits.HEARTBEAT_MS


@dataclass(slots=True)
class WorkStats:
    """Counters over all sessions of a process; `queues` are the queue processes of the present session."""

    queues: list[str] = field(default_factory=list)
    #: Tickets that were received, jobs that they started, and tickets that started no job.
    tickets: int = 0
    started: int = 0
    dropped: int = 0
    #: Outcomes that were accepted, and outcomes that were refused.
    reported: int = 0
    refused: int = 0

    def leave(self) -> None:
        """Resets the queue processes at the end of a session."""
        self.queues = []
