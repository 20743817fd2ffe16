"""ScheduleManager: creates jobs by time.

Invariants: a tick is one event, and the same event moves its schedule to the next tick, so that no tick fires twice or
is lost. `apply` needs no clock and no time zone. A paused schedule has no live heap entry. Heap entries may be stale;
they are checked when they reach the top. The rules for ticks are in `core/ticks.py`.
"""

import heapq

from holdfast.core.commands import (
    Decision,
    DeleteSchedule,
    PauseSchedule,
    Refusal,
    SetSchedule,
    Tick,
    TriggerSchedule,
)
from holdfast.core.events import CancelAccepted, Created, ScheduleDeleted, SchedulePaused, ScheduleSet, Ticked
from holdfast.core.lifecycle import CANCELED, QUEUED, RUNNING, TERMINAL, State
from holdfast.core.model import Now, QueueMode, Schedule, ScheduleSpec
from holdfast.core.state import LedgerState
from holdfast.core.tasks import TaskManager
from holdfast.core.ticks import (
    FIRED,
    MISSED,
    SKIPPED,
    TRIGGERED,
    cancel_reason,
    check_plan,
    draining_queue,
    due_tick,
    is_canceling,
    is_planned,
    is_skipped,
    job_of_tick,
    job_of_trigger,
    planned,
    resumed,
    trigger_tick,
    unknown_schedule,
)


class ScheduleManager:
    """The part of the ledger that owns schedules."""

    __slots__ = ("_heap", "_state", "_tasks")

    def __init__(self, state: LedgerState, tasks: TaskManager) -> None:
        self._state = state
        self._tasks = tasks
        self._heap: list[tuple[int, str]] = []
        for schedule in state.schedules.values():
            self._watch(schedule)

    # -- time

    def next_due_ms(self) -> int | None:
        """The log time of the earliest tick."""
        heap = self._heap
        while heap and not self._is_live(*heap[0]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def _is_live(self, next_ms: int, name: str) -> bool:
        schedule = self._state.schedules.get(name)
        return schedule is not None and schedule.next_ms == next_ms and not schedule.is_paused

    # -- decisions

    def set(self, command: SetSchedule, now: Now) -> Decision | Refusal:
        """Plans the schedule from now on; a repeated spec changes nothing, unless its plan has ended."""
        spec, schedules = command.spec, self._state.schedules
        known = schedules.get(spec.name)
        if is_planned(known, spec):
            return Decision(None, spec.name)
        refusal = check_plan(spec, now.log_ms, is_new=known is None, count=len(schedules))
        if refusal is not None:
            return refusal
        return Decision(ScheduleSet(now.log_ms, spec, planned(known, spec, now.log_ms)), spec.name)

    def delete(self, command: DeleteSchedule, now: Now) -> Decision | Refusal:
        """Deletes the schedule; its jobs stay."""
        if command.name not in self._state.schedules:
            return unknown_schedule(command.name)
        return Decision(ScheduleDeleted(now.log_ms, command.name))

    def pause(self, command: PauseSchedule, now: Now) -> Decision | Refusal:
        """Pauses or resumes the schedule; ticks during a pause are passed over."""
        schedule = self._state.schedules.get(command.name)
        if schedule is None:
            return unknown_schedule(command.name)
        if schedule.is_paused == command.is_paused:
            return Decision(None)
        next_ms = schedule.next_ms if command.is_paused else resumed(schedule, now.log_ms)
        return Decision(SchedulePaused(now.log_ms, command.name, command.is_paused, next_ms))

    def trigger(self, command: TriggerSchedule, now: Now) -> Decision | Refusal:
        """Creates a job now, independent of the plan."""
        schedule = self._state.schedules.get(command.name)
        if schedule is None:
            return unknown_schedule(command.name)
        refusal = self._tasks.no_room(1, 1) or self._draining(schedule.spec)
        if refusal is not None:
            return refusal
        spec, tick_ms = schedule.spec, trigger_tick(now.log_ms)
        job = job_of_trigger(spec, now.log_ms, command.job_id)
        event = Ticked(now.log_ms, command.name, tick_ms, TRIGGERED, schedule.next_ms, template=spec.template, job=job)
        return Decision(event, command.job_id)

    def tick(self, command: Tick, now: Now) -> Decision | Refusal:
        """Processes the earliest due tick; the reply says whether there was one."""
        due_ms = self.next_due_ms()
        if due_ms is None or due_ms > now.log_ms:
            return Decision(None, reply=False)
        schedule = self._state.schedules[self._heap[0][1]]
        return self._tick(schedule, command.job_id, now)

    def _tick(self, schedule: Schedule, job_id: str, now: Now) -> Decision | Refusal:
        spec, due = schedule.spec, due_tick(schedule, now.log_ms)
        if due.is_missed:
            return Decision(Ticked(now.log_ms, spec.name, due.tick_ms, MISSED, due.next_ms, due.missed), reply=True)
        refusal = self._tasks.no_room(1, 1)
        if refusal is not None:
            return refusal
        last = self._state.jobs.get(schedule.last_job_id)
        is_busy = last is not None and last.state not in TERMINAL
        if is_skipped(spec, is_busy=is_busy, is_draining=self._draining(spec) is not None):
            return Decision(Ticked(now.log_ms, spec.name, due.tick_ms, SKIPPED, due.next_ms, due.missed), reply=True)
        canceled, canceled_state = "", 0
        if last is not None and is_canceling(spec, is_busy=is_busy) and not last.cancel_requested:
            canceled, canceled_state = last.id, CANCELED if last.state == QUEUED else RUNNING
        event = Ticked(
            now.log_ms,
            spec.name,
            due.tick_ms,
            FIRED,
            due.next_ms,
            due.missed,
            spec.template,
            job_of_tick(spec, due.tick_ms, job_id),
            canceled,
            int(canceled_state),
        )
        return Decision(event, reply=True)

    def _draining(self, spec: ScheduleSpec) -> Refusal | None:
        closure = self._state.modes.get(spec.template.queue)
        is_draining = closure is not None and closure.mode == QueueMode.DRAINING
        return draining_queue(spec.template.queue) if is_draining else None

    # -- application

    def apply_set(self, event: ScheduleSet) -> None:
        """Creates or replaces a schedule; its counters are kept."""
        state, spec = self._state, event.spec
        before = state.schedules.get(spec.name)
        if before is not None:
            state.lift_schedule(before)
        schedule = Schedule(spec, event.at_ms, event.next_ms)
        if before is not None:
            schedule.last_tick_ms, schedule.last_job_id = before.last_tick_ms, before.last_job_id
            schedule.fired, schedule.skipped, schedule.missed = before.fired, before.skipped, before.missed
            schedule.is_paused = before.is_paused
        state.put_schedule(schedule)
        self._watch(schedule)

    def apply_deleted(self, event: ScheduleDeleted) -> None:
        """Removes a schedule."""
        self._state.lift_schedule(self._state.schedules.pop(event.name))

    def apply_paused(self, event: SchedulePaused) -> None:
        """Pauses or resumes a schedule."""
        schedule = self._state.schedules[event.name]
        self._state.lift_schedule(schedule)
        schedule.is_paused, schedule.next_ms = event.is_paused, event.next_ms
        self._state.put_schedule(schedule)
        self._watch(schedule)

    def apply_ticked(self, event: Ticked) -> None:
        """Creates the job, cancels the previous one if the event says so, and moves to the next tick."""
        state = self._state
        schedule = state.schedules[event.name]
        state.lift_schedule(schedule)
        if event.canceled:
            reason = cancel_reason(event.name)
            self._tasks.apply_cancel(CancelAccepted(event.at_ms, event.canceled, State(event.canceled_state), reason))
        if event.job is not None:
            assert event.template is not None
            self._tasks.apply_created(Created(event.at_ms, [event.template], [event.job]))
            schedule.last_job_id = event.job.id
        schedule.fired += event.outcome in (FIRED, TRIGGERED)
        schedule.skipped += event.outcome == SKIPPED
        schedule.missed += event.missed
        if event.outcome != TRIGGERED:
            schedule.next_ms = event.next_ms
            schedule.last_tick_ms = event.tick_ms
        state.put_schedule(schedule)
        self._watch(schedule)

    def _watch(self, schedule: Schedule) -> None:
        if schedule.next_ms and not schedule.is_paused:
            heapq.heappush(self._heap, (schedule.next_ms, schedule.spec.name))
        if len(self._heap) > 2 * len(self._state.schedules) + 64:
            self._heap = sorted({entry for entry in self._heap if self._is_live(*entry)})
