"""Ticks against a clock of our own: at the end of a turn, nothing that is due was left lying.

Unless there was no room for it, or there was so much that it takes another turn.
"""

from holdfast.core.model import Now
from holdfast.ledger.coordinator import Coordinator
from holdfast.testing.disk import SimDisk
from holdfast.testing.simulation.violation import require


class TickWatch:
    """A follower of one life's coordinator, after the one that ticks."""

    is_watching = False

    def __init__(self, coordinator: Coordinator, disk: SimDisk) -> None:
        self._coordinator = coordinator
        self._disk = disk
        self._turns_behind = 0
        coordinator.followers.append(self)

    def follow(self, now: Now) -> None:
        """Looks at every schedule, not at what is planned."""
        if self._disk.faults.free_bytes is not None or self._coordinator.is_frame_full:
            return
        if self._coordinator.ledger.tasks.no_room(1, 1) is not None:  # ticks wait until there is
            self._turns_behind = 0
            return
        schedules = self._coordinator.ledger.book.schedules.values()
        due = [schedule for schedule in schedules if schedule.next_ms and not schedule.is_paused]
        late = sorted((schedule.next_ms, schedule.spec.name) for schedule in due if schedule.next_ms <= now.log_ms)
        self._turns_behind = self._turns_behind + 1 if late else 0
        require(self._turns_behind <= _TURNS_MAX, f"the ticks {late[:3]} are due at {now.log_ms}, and nobody looks")


#: Turns in which so many ticks are due that some are left to the next.
_TURNS_MAX = 10
