"""What a worker without a stream holds, and what it is to be told next.

Invariants: a lease is held from its arrival until its outcome is answered, it is handed back, or it is revoked; it is
revoked by this process's own clock once whoever granted it, who counts from a later instant, may have given it up.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from holdfast.core.capabilities import Capabilities
from holdfast.ports import Assignment, Directive


@dataclass(slots=True)
class Held:
    """One lease."""

    job_id: str
    expires_s: float
    #: Whether its holder has heard of it.
    is_delivered: bool = True


class Holding:
    """All leases of one session, by token. Times are those of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._leases: dict[int, Held] = {}

    def add(self, token: int, job_id: str, expires_s: float, *, is_delivered: bool) -> None:
        """A lease, as it comes."""
        self._leases[token] = Held(job_id, expires_s, is_delivered)

    def named(self) -> dict[int, str]:
        """The job of each."""
        return {token: held.job_id for token, held in self._leases.items()}

    def undelivered(self) -> dict[int, str]:
        """Those that never reached their holder."""
        return {token: held.job_id for token, held in self._leases.items() if not held.is_delivered}

    def deliver(self, tokens: Iterable[int]) -> None:
        """Their holder has them now."""
        for token in tokens:
            if token in self._leases:
                self._leases[token].is_delivered = True

    def of_jobs(self, job_ids: Collection[str]) -> list[int]:
        """The tokens under which these jobs are held."""
        wanted = set(job_ids)
        return [token for token, held in self._leases.items() if held.job_id in wanted]

    def extend(self, tokens: Iterable[int], expires_s: float) -> None:
        """A heartbeat that named these was answered."""
        for token in tokens:
            if token in self._leases:
                self._leases[token].expires_s = max(self._leases[token].expires_s, expires_s)

    def drop(self, tokens: Iterable[int]) -> list[int]:
        """Takes out those of them that are held, and says which."""
        return [token for token in tokens if self._leases.pop(token, None) is not None]

    def expired(self, now_s: float) -> list[int]:
        """Those whose time is over."""
        return [token for token, held in self._leases.items() if held.expires_s <= now_s]

    def next_s(self) -> float | None:
        """When the next one runs out."""
        return min((held.expires_s for held in self._leases.values()), default=None)


@dataclass(slots=True)
class News:
    """What the holder has not heard yet, put together as it comes."""

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
        """Whether there is something to say."""
        is_told = self.lease_ms or self.is_drained or self.is_drain_asked
        return bool(self.leases or self.cancels or self.revoked or self.reported or is_told)

    def directive(self) -> Directive:
        """All of it at once. What was revoked before its holder heard of it is not mentioned at all."""
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


class Acknowledging:
    """Reports under way: one is acknowledged when all its rows are answered, and so are all before it."""

    def __init__(self) -> None:
        self._rows_left: dict[int, int] = {}

    def begin(self, report_id: int, rows: int) -> None:
        """A report is sent."""
        self._rows_left[report_id] = self._rows_left.get(report_id, 0) + rows

    def answered(self, report_id: int, rows: int = 1) -> int:
        """Some of its rows are answered; the number up to which all reports are, or 0 if that is none of these."""
        self._rows_left[report_id] -= rows
        last = 0
        for number in list(self._rows_left):
            if self._rows_left[number]:
                break
            del self._rows_left[number]
            last = number
        return last
