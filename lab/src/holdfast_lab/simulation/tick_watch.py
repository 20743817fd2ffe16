"""Checks ticks against an independent clock: no turn leaves a due tick.

Exceptions: there was no disk space, or so many ticks that they take another turn.
"""

from holdfast.core.model import Now
from holdfast.ledger.coordinator import Coordinator
from holdfast_lab.simulation.disk import SimDisk
from holdfast_lab.simulation.violation import require


class TickWatch:
    """A follower of the coordinator of one process run, after the one that ticks."""

    is_watching = False

    def __init__(self, coordinator: Coordinator, disk: SimDisk) -> None:
        self._coordinator = coordinator
        self._disk = disk
        self._turns_behind = 0
        coordinator.followers.append(self)

    def follow(self, now: Now) -> None:
        """Checks every schedule, not only the planned ticks."""
        if self._disk.faults.free_bytes is not None or self._coordinator.is_frame_full:
            return
        if self._coordinator.ledger.tasks.no_room(1, 1) is not None:  # ticks wait for memory
            self._turns_behind = 0
            return
        schedules = self._coordinator.ledger.state.schedules.values()
        due = [schedule for schedule in schedules if schedule.next_ms and not schedule.is_paused]
        late = sorted((schedule.next_ms, schedule.spec.name) for schedule in due if schedule.next_ms <= now.log_ms)
        self._turns_behind = self._turns_behind + 1 if late else 0
        require(
            self._turns_behind <= _TURNS_MAX, f"the ticks {late[:3]} are due at {now.log_ms}, and no turn fires them"
        )


#: The number of consecutive turns that may leave due ticks to the next one.
_TURNS_MAX = 10
