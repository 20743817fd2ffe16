"""The ledger: a state machine over events.

`decide(command, now)` reads the state and returns one event, a reply, or a refusal; it changes nothing. `apply(event)`
changes the state and cannot fail. Replay calls only `apply`. The decisions are made by `TaskManager`, `LeaseManager`,
`QueueManager`, `ScheduleManager` and `NoteManager`; this class joins them and keeps the position.
"""

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from holdfast.core import commands, events
from holdfast.core.commands import AnyCommand, Decision, Refusal
from holdfast.core.events import AnyEvent
from holdfast.core.leases import LeaseManager
from holdfast.core.lifecycle import State
from holdfast.core.listing import Place, Scan
from holdfast.core.model import JobRecord, Now
from holdfast.core.notes import NoteManager
from holdfast.core.queues import QueueManager
from holdfast.core.schedules import ScheduleManager
from holdfast.core.state import LedgerState
from holdfast.core.tasks import TaskManager
from holdfast.limits import SCAN_JOBS_MAX

ALL_STATES = frozenset(State)


class LedgerConfig(msgspec.Struct, frozen=True):
    """Settings that decisions depend on. `apply` never reads them, except the bound of dedup keys in memory."""

    aging_ms: int = 60_000
    dedup_keys_max: int = 0
    #: New jobs are refused while the held jobs take more than this; 0 means no limit.
    memory_bytes: int = 0


class Ledger:
    """All jobs, as built by the events so far."""

    __slots__ = ("_applies", "_decides", "config", "leases", "position", "queues", "schedules", "state", "tasks")

    def __init__(self, config: LedgerConfig, state: LedgerState | None = None, position: int = 0) -> None:
        self.config = config
        self.state = state or LedgerState(config.dedup_keys_max)
        self.position = position
        self.tasks = TaskManager(self.state, config.memory_bytes)
        self.leases = LeaseManager(self.state, config.aging_ms)
        self.queues = QueueManager(self.state)
        self.schedules = ScheduleManager(self.state, self.tasks)
        self._decides: dict[type, Callable[[Any, Now], Decision | Refusal]] = {
            commands.Submit: self.tasks.submit,
            commands.Cancel: self.tasks.cancel,
            commands.CancelQueued: self.tasks.cancel_queued,
            commands.SetQueueMode: self.queues.set_mode,
            commands.TakeNotes: NoteManager(self.leases).take,
            commands.Evict: self.tasks.evict,
            commands.GrantLeases: self.leases.lease,
            commands.Extend: self.leases.extend,
            commands.Report: self.leases.report,
            commands.Revoke: self.leases.revoke,
            commands.SetSchedule: self.schedules.set,
            commands.DeleteSchedule: self.schedules.delete,
            commands.PauseSchedule: self.schedules.pause,
            commands.TriggerSchedule: self.schedules.trigger,
            commands.Tick: self.schedules.tick,
            commands.Expire: self.leases.expire,
            commands.Start: lambda start, now: Decision(events.Started(now.log_ms, start.epoch, start.process)),
        }
        self._applies: dict[type, Callable[[Any], object]] = {
            events.Started: self.leases.apply_started,
            events.Created: self.tasks.apply_created,
            events.CancelAccepted: self.tasks.apply_cancel,
            events.QueuedCanceled: self.tasks.apply_queued_canceled,
            events.QueueModeSet: self.queues.apply_mode,
            events.Noted: lambda _: None,
            events.Evicted: self.tasks.apply_evicted,
            events.Retired: self.tasks.apply_retired,
            events.Granted: self.leases.apply_granted,
            events.Extended: self.leases.apply_extended,
            events.Revoked: self.leases.apply_revoked,
            events.ScheduleSet: self.schedules.apply_set,
            events.ScheduleDeleted: self.schedules.apply_deleted,
            events.SchedulePaused: self.schedules.apply_paused,
            events.Ticked: self.schedules.apply_ticked,
            events.Reported: self.leases.apply_reported,
        }

    def decide(self, command: AnyCommand, now: Now) -> Decision | Refusal:
        """Decides a command at this instant; changes nothing."""
        assert now.log_ms >= self.state.last_ms, "log time must not go back"
        self.leases.observe(now)
        return self._decides[type(command)](command, now)

    def apply(self, event: AnyEvent) -> None:
        """Applies the event to the state."""
        state = self.state
        assert event.at_ms >= state.last_ms, "events must be in log time order"
        state.last_ms = event.at_ms
        state.moves.clear()
        self._applies[type(event)](event)
        self.position += 1

    @property
    def digest(self) -> int:
        """A hash of the state, equal wherever the same events were applied."""
        return self.state.digest

    def job(self, job_id: str) -> JobRecord | None:
        """The job, as long as it is kept."""
        return self.state.jobs.get(job_id)

    def page(
        self, states: Collection[int], offset: int, size: int, *, newest_first: bool
    ) -> tuple[list[JobRecord], bool]:
        """A page of jobs by creation, and whether more follow; an empty `states` means all states."""
        return self.state.listing.page(wanted_states(states), offset, size, newest_first=newest_first)

    def scan(  # noqa: PLR0913 - a search has many parameters
        self,
        states: Collection[int],
        after: Place | None,
        size: int,
        budget: int = SCAN_JOBS_MAX,
        *,
        newest_first: bool,
        wants: Callable[[JobRecord], bool],
        created_from_ms: int = 0,
        created_before_ms: int = 0,
    ) -> tuple[list[JobRecord], Place | None]:
        """Matching jobs by creation after a place (`created_ms`, id), and the place to continue; see `Listing.scan`."""
        scan = Scan(wanted_states(states), wants, newest_first, created_from_ms, created_before_ms)
        return self.state.listing.scan(scan, after, size, budget)


def wanted_states(states: Collection[int]) -> frozenset[int]:
    """The states as a set, so that a state named twice counts once; an empty collection means all states."""
    return ALL_STATES.intersection(states) if states else ALL_STATES
