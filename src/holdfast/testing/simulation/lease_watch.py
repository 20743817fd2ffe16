"""Leases against a clock of our own: none expires early, none outlives its time, none is revived.

Steady time is compared, less what the process was stopped for. A stop may cost a lease up to `STALL_MS`,
once, so after one the check of an early end allows for that, and the check of a late one waits for the
next extension.
"""

from holdfast.coordinator.loop import Coordinator
from holdfast.coordinator.timekeeper import STALL_MS
from holdfast.core.events import AnyEvent, Extended, Granted, Reported, Revoked
from holdfast.core.ledger import Ledger
from holdfast.core.model import Now
from holdfast.testing.disk import SimDisk
from holdfast.testing.simulation.clockwork import Clockwork
from holdfast.testing.simulation.process import Process
from holdfast.testing.simulation.violation import Violation, require

#: Two clocks in whole milliseconds may disagree by one at each end of a stop.
_ROUNDING_MS = 2


class _Watched:
    __slots__ = ("due_ms", "stalls", "stopped_ms")

    def __init__(self, due_ms: int, process: Process) -> None:
        self.due_ms = due_ms
        self.stalls = process.stalls
        self.stopped_ms = process.stopped_ms


class LeaseWatch:
    """An observer and the last follower of one life's coordinator."""

    def __init__(self, coordinator: Coordinator, process: Process, clock: Clockwork, disk: SimDisk) -> None:
        self._coordinator = coordinator
        self._process = process
        self._clock = clock
        self._disk = disk
        self._watched: dict[int, _Watched] = {}
        self._early_ms = 0
        coordinator.observers.append(self)
        coordinator.followers.append(self)

    def resumed(self, log_ms: int) -> None:
        """The coordinator starts: a lease has what remains in log time, and no more than its length."""
        for token, lease in self._coordinator.ledger.book.leases.items():
            self._watch(token, min(lease.expires_ms - log_ms, lease.lease_ms))

    def _watch(self, token: int, remaining_ms: int) -> None:
        self._watched[token] = _Watched(self._clock.steady_ms() + remaining_ms, self._process)
        self._early_ms = min(self._early_ms, self._watched[token].due_ms)

    def _overtime_ms(self, watched: _Watched) -> int:
        return self._clock.steady_ms() - watched.due_ms

    def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
        """Keeps up with grants and ends."""
        if type(event) is Granted:
            for token in range(event.first_token, event.first_token + len(event.job_ids)):
                self._watch(token, event.lease_ms)
        elif type(event) is Extended:
            for token in event.tokens:
                self._check_alive(token)
                self._watch(token, event.lease_ms)
        elif type(event) is Revoked:
            for row in event.rows:
                self._end(row.token, is_expiry=event.reason == "expired")
        elif type(event) is Reported:
            for result in event.results:
                self._check_alive(result.token)
                del self._watched[result.token]

    def _check_alive(self, token: int) -> None:
        watched = self._watched[token]
        is_late = watched.stalls == self._process.stalls and self._overtime_ms(watched) >= 0
        require(not is_late, f"the lease {token} was over and was revived")

    def _end(self, token: int, *, is_expiry: bool) -> None:
        watched = self._watched.pop(token)
        if not is_expiry:
            return
        # Less than the whole time of a lease may pass in stops: each counts for STALL_MS at most.
        allowed_ms = (STALL_MS + _ROUNDING_MS) * (self._process.stalls - watched.stalls)
        stopped_ms = self._process.stopped_ms - watched.stopped_ms
        early_ms = stopped_ms - self._overtime_ms(watched)
        require(early_ms <= allowed_ms, f"the lease {token} expired {early_ms} ms early, {allowed_ms} allowed")

    @property
    def is_watching(self) -> bool:
        """Never by itself: leases make the loop look at time anyway."""
        return False

    def follow(self, now: Now) -> None:
        """At the end of a turn no lease is past its time, unless there was no room to say so."""
        if self._disk.faults.free_bytes is not None or self._clock.steady_ms() < self._early_ms:
            return
        stalls = self._process.stalls
        for token, watched in self._watched.items():
            if watched.stalls == stalls and self._overtime_ms(watched) >= 0:
                raise Violation(f"the lease {token} outlived its time by {self._overtime_ms(watched)} ms")
        self._early_ms = min((watched.due_ms for watched in self._watched.values()), default=self._clock.steady_ms())

    def durable(self, position: int) -> None:
        """Nothing to do."""

    def bug(self, command: object, error: Exception) -> None:
        """A command that cannot be decided is a mistake of the program."""
        if self._process.is_alive and not self._process.is_failing:
            raise Violation(f"{type(command).__name__} could not be decided: {error!r}") from error
