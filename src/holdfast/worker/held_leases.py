"""The leases of a worker without an event stream, and the changes that it has not received yet.

Invariants: a lease is held from its arrival until its outcome is answered, it is released, or it is revoked. It is
revoked by this process's own clock as soon as the backend, which counts from a later instant, may have given it up.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from holdfast.core.capabilities import Capabilities
from holdfast.ports import Assignment, Directive


@dataclass(slots=True)
class HeldLease:
    """One lease."""

    job_id: str
    expires_s: float
    #: Whether the worker has received it.
    is_delivered: bool = True


class HeldLeases:
    """All leases of one session, by token. Times are those of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._leases: dict[int, HeldLease] = {}

    def add(self, token: int, job_id: str, expires_s: float, *, is_delivered: bool) -> None:
        """Adds a lease that has arrived."""
        self._leases[token] = HeldLease(job_id, expires_s, is_delivered)

    def named(self) -> dict[int, str]:
        """The job ids of all leases, by token."""
        return {token: held.job_id for token, held in self._leases.items()}

    def undelivered(self) -> dict[int, str]:
        """The job ids of leases that the worker has not received, by token."""
        return {token: held.job_id for token, held in self._leases.items() if not held.is_delivered}

    def deliver(self, tokens: Iterable[int]) -> None:
        """Marks leases as received by the worker."""
        for token in tokens:
            if token in self._leases:
                self._leases[token].is_delivered = True

    def of_jobs(self, job_ids: Collection[str]) -> list[int]:
        """The tokens under which these jobs are held."""
        wanted = set(job_ids)
        return [token for token, held in self._leases.items() if held.job_id in wanted]

    def extend(self, tokens: Iterable[int], expires_s: float) -> None:
        """Extends leases that an answered heartbeat named."""
        for token in tokens:
            if token in self._leases:
                self._leases[token].expires_s = max(self._leases[token].expires_s, expires_s)

    def drop(self, tokens: Iterable[int]) -> list[int]:
        """Removes leases, and returns the tokens of those that were held."""
        return [token for token in tokens if self._leases.pop(token, None) is not None]

    def expired(self, now_s: float) -> list[int]:
        """The tokens of leases that have expired."""
        return [token for token, held in self._leases.items() if held.expires_s <= now_s]

    def next_s(self) -> float | None:
        """The time when the next lease expires; None without leases."""
        return min((held.expires_s for held in self._leases.values()), default=None)


@dataclass(slots=True)
class PendingDirective:
    """Changes that the worker has not received yet, collected for the next directive."""

    leases: list[Assignment] = field(default_factory=list)
    cancels: list[int] = field(default_factory=list)
    revoked: list[int] = field(default_factory=list)
    reported: int = 0
    lease_ms: int = 0
    heartbeat_ms: int = 0
    capabilities: Capabilities | None = None
    is_drained: bool = False
    is_drain_asked: bool = False

    @property
    def is_any(self) -> bool:
        """Whether there is a change to deliver."""
        is_told = self.lease_ms or self.is_drained or self.is_drain_asked
        return bool(self.leases or self.cancels or self.revoked or self.reported or is_told)

    def directive(self) -> Directive:
        """All changes in one directive. A lease that was revoked before its delivery is left out."""
        unheard = {lease.token for lease in self.leases}.intersection(self.revoked)
        return Directive(
            leases=[lease for lease in self.leases if lease.token not in unheard],
            cancels=[token for token in self.cancels if token not in unheard],
            revoked=[token for token in self.revoked if token not in unheard],
            reported=self.reported,
            lease_ms=self.lease_ms,
            heartbeat_ms=self.heartbeat_ms,
            is_drained=self.is_drained,
            is_drain_asked=self.is_drain_asked,
            capabilities=self.capabilities,
        )


class UnacknowledgedReports:
    """Reports without a complete answer. A report is acknowledged once it and all earlier ones are answered."""

    def __init__(self) -> None:
        self._rows_left: dict[int, int] = {}

    def begin(self, report_id: int, rows: int) -> None:
        """Registers a report that is sent."""
        self._rows_left[report_id] = self._rows_left.get(report_id, 0) + rows

    def answered(self, report_id: int, rows: int = 1) -> int:
        """Counts answered rows. Returns the number up to which all reports are now complete; 0 if no more are."""
        self._rows_left[report_id] -= rows
        last = 0
        for number in list(self._rows_left):
            if self._rows_left[number]:
                break
            del self._rows_left[number]
            last = number
        return last
