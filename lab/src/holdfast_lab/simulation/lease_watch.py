"""Checks leases against an independent clock: none expires early or late or is revived, and no outcome is lost.

Monotonic time is compared, minus the time during which the process was stopped. A stop may cost a lease up to
`STALL_MS`, once. So after a stop the check for an early end allows for that, and the check for a late one waits for the
next extension.

An outcome that was decided under a live lease must be recorded by this process of the coordinator. It may wait for disk
space; its lease is kept meanwhile and is not revoked. An outcome that fits into the space reserved for its leases does
not wait. The expiry of a lease does not wait either, unless the disk was already full when this process began.
"""

from collections.abc import Callable, Iterable
from typing import Any

from holdfast.core.commands import Decision, Extension, Refusal, Report
from holdfast.core.events import AnyEvent, Granted, Reported, Revoked, encode_one
from holdfast.core.ledger import Ledger
from holdfast.core.model import Now
from holdfast.ledger.command_clock import STALL_MS
from holdfast.ledger.coordinator import FRAME_BYTES, Coordinator
from holdfast_lab.simulation.disk import SimDisk
from holdfast_lab.simulation.model import Model, ModelLease
from holdfast_lab.simulation.process import SimulatedProcess
from holdfast_lab.simulation.scheduler import SimulatedScheduler
from holdfast_lab.simulation.violation import Violation, require

#: Two clocks in whole milliseconds may differ by one at each end of a stop.
_ROUNDING_MS = 2
#: The number of consecutive turns that may leave expired leases to the next one.
_TURNS_BEHIND_MAX = 100


class _Watched:
    __slots__ = ("due_ms", "stalls", "stopped_ms")

    def __init__(self, due_ms: int, process: SimulatedProcess) -> None:
        self.due_ms = due_ms
        self.stalls = process.stalls
        self.stopped_ms = process.stopped_ms


class _OverheardLeases:
    """Wraps the lease manager of a ledger, and notifies a watch of extensions that are not events."""

    def __init__(self, leases: Any, watch: "LeaseWatch") -> None:  # noqa: ANN401 - it stands for all its methods
        self._leases = leases
        self._watch = watch

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._leases, name)

    def prolong(self, extension: Extension) -> None:
        self._watch.extended(extension)
        self._leases.prolong(extension)


Decide = Callable[[Any, Now], Decision | Refusal]


def _seeing(decide: Decide, seen: Callable[[AnyEvent], None]) -> Decide:
    """Returns a function that decides the same, and passes the events to `seen`."""

    def seeing(command: object, now: Now) -> Decision | Refusal:
        decision = decide(command, now)
        if isinstance(decision, Decision) and decision.event is not None:
            seen(decision.event)
        return decision

    return seeing


class LeaseWatch:
    """An observer and the last follower of the coordinator of one process run."""

    def __init__(
        self,
        coordinator: Coordinator,
        process: SimulatedProcess,
        clock: SimulatedScheduler,
        disk: SimDisk,
        outcome_bytes: int,
    ) -> None:
        self._coordinator = coordinator
        self._process = process
        self._clock = clock
        self._disk = disk
        self._watched: dict[int, _Watched] = {}
        self._early_ms = 0
        #: Leases whose outcome was decided but is not recorded yet.
        self._reported: set[int] = set()
        #: The reported leases whose outcome must not wait.
        self._fitting: set[int] = set()
        self._outcome_bytes = outcome_bytes
        self._turns_behind = 0
        self._is_short = disk.faults.free_bytes is not None
        decides = coordinator.ledger._decides  # noqa: SLF001 - decisions that are not applied are visible nowhere else
        decides[Report] = _seeing(decides[Report], self._see_reported)
        coordinator.observers.append(self)
        coordinator.followers.append(self)
        coordinator.ledger.leases = _OverheardLeases(coordinator.ledger.leases, self)  # type: ignore[assignment]

    def resumed(self, log_ms: int, leases: Iterable[ModelLease]) -> None:
        """Restarts the leases when the coordinator starts: each gets its full length again, once."""
        for lease in leases:
            self._watch(lease.token, Model.renewal_ms(lease, log_ms))

    def extended(self, extension: Extension) -> None:
        """Handles a heartbeat: the worker's leases had not expired, and last a full lease from now."""
        for token in extension.tokens:
            self._check_alive(token)
            self._watch(token, extension.lease_ms)

    def _see_reported(self, event: AnyEvent) -> None:
        """Notes outcomes that were decided; they are recorded now or later."""
        if type(event) is Reported:
            tokens = {result.token for result in event.results}.difference(self._reported)
            for token in tokens:
                self._check_alive(token)
            self._reported.update(tokens)
            if len(encode_one(event)) + FRAME_BYTES <= len(event.results) * self._outcome_bytes:
                self._fitting.update(tokens)

    def _watch(self, token: int, remaining_ms: int) -> None:
        self._watched[token] = _Watched(self._clock.steady_ms() + remaining_ms, self._process)
        self._early_ms = min(self._early_ms, self._watched[token].due_ms)

    def _overtime_ms(self, watched: _Watched) -> int:
        return self._clock.steady_ms() - watched.due_ms

    def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
        """Follows grants and ends."""
        if type(event) is Granted:
            for token in range(event.first_token, event.first_token + len(event.job_ids)):
                self._watch(token, event.lease_ms)
        elif type(event) is Revoked:
            for row in event.rows:
                self._end(row.token, is_expiry=event.reason == "expired")
        elif type(event) is Reported:
            for result in event.results:
                self._reported.discard(result.token)
                self._fitting.discard(result.token)
                del self._watched[result.token]

    def _check_alive(self, token: int) -> None:
        watched = self._watched[token]
        if token in self._reported:
            return
        is_late = watched.stalls == self._process.stalls and self._overtime_ms(watched) >= 0
        require(not is_late, f"the lease {token} had expired and was revived")

    def _end(self, token: int, *, is_expiry: bool) -> None:
        watched = self._watched.pop(token)
        require(token not in self._reported, f"the lease {token} was revoked after its outcome had been reported")
        if not is_expiry:
            return
        # A stop may cost a lease part of its time: each stop counts for at most STALL_MS.
        allowed_ms = (STALL_MS + _ROUNDING_MS) * (self._process.stalls - watched.stalls)
        stopped_ms = self._process.stopped_ms - watched.stopped_ms
        early_ms = stopped_ms - self._overtime_ms(watched)
        require(early_ms <= allowed_ms, f"the lease {token} expired {early_ms} ms early, {allowed_ms} allowed")

    @property
    def is_watching(self) -> bool:
        """Returns False: leases make the loop check the time anyway."""
        return False

    def follow(self, now: Now) -> None:
        """Checks at the end of a turn that no lease has expired, unless its outcome waits for space.

        If more leases have expired than one turn revokes, some remain for a few turns.
        """
        self._is_short &= self._disk.faults.free_bytes is not None
        # A turn in which the journal fails ends like any other, but records nothing more: the process ends after it.
        if self._is_short or not self._coordinator.is_serving:
            return
        require(not self._fitting, f"space is reserved for the outcomes of {sorted(self._fitting)[:5]}, but they wait")
        self._turns_behind = self._turns_behind + 1 if self._coordinator.ledger.leases.is_behind else 0
        require(self._turns_behind <= _TURNS_BEHIND_MAX, f"expired leases wait for {self._turns_behind} turns")
        if self._turns_behind or self._clock.steady_ms() < self._early_ms:
            return
        stalls = self._process.stalls
        for token, watched in self._watched.items():
            is_late = watched.stalls == stalls and self._overtime_ms(watched) >= 0
            if is_late and token not in self._reported:
                raise Violation(f"the lease {token} outlived its time by {self._overtime_ms(watched)} ms")
        self._early_ms = min((watched.due_ms for watched in self._watched.values()), default=self._clock.steady_ms())

    def durable(self, position: int) -> None:
        """Does nothing."""

    def bug(self, command: object, error: Exception) -> None:
        """Raises: a command that cannot be decided is a bug."""
        if self._process.is_alive and not self._process.is_failing:
            raise Violation(f"{type(command).__name__} could not be decided: {error!r}") from error
