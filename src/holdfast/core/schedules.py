"""ScheduleManager: jobs that are made by time.

Invariants: a tick is one event, and the same event moves its schedule on to the next, so that no tick fires twice and
none is forgotten; what `apply` does needs no clock and no time zone. A schedule that is paused has no next tick in the
heap. Heap entries may be stale; they are checked when they come up.

A tick later than `LATE_MS` was missed: nobody was there, or the clock jumped.
"""

import hashlib
import heapq
from collections.abc import Iterator

from holdfast import limits
from holdfast.core import cron
from holdfast.core.book import Book
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
from holdfast.core.model import SCHEDULE, SCHEDULED_FOR, Extra, NewJob, Now, QueueMode, Schedule, ScheduleSpec
from holdfast.core.schedule_checks import check_spec
from holdfast.core.tasks import TaskManager
from holdfast.errors import Code

LATE_MS = 60_000
FIRED, SKIPPED, MISSED, TRIGGERED = "fired", "skipped", "missed", "triggered"

_SECOND_MS = 1_000


class ScheduleManager:
    """The part of the ledger that owns schedules."""

    __slots__ = ("_book", "_heap", "_tasks")

    def __init__(self, book: Book, tasks: TaskManager) -> None:
        self._book = book
        self._tasks = tasks
        self._heap: list[tuple[int, str]] = []
        for schedule in book.schedules.values():
            self._watch(schedule)

    # -- time

    def next_due_ms(self) -> int | None:
        """The log time of the earliest tick."""
        heap = self._heap
        while heap and not self._is_live(*heap[0]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def _is_live(self, next_ms: int, name: str) -> bool:
        schedule = self._book.schedules.get(name)
        return schedule is not None and schedule.next_ms == next_ms and not schedule.is_paused

    # -- decisions

    def set(self, command: SetSchedule, now: Now) -> Decision | Refusal:
        """Plans anew from now; a repeated one changes nothing, unless the plan had come to an end."""
        spec, schedules = command.spec, self._book.schedules
        known = schedules.get(spec.name)
        if known is not None and known.spec == spec and (known.next_ms or spec.at_ms):
            return Decision(None, spec.name)
        refusal = check_spec(spec, now.log_ms)
        if refusal is None and known is None and len(schedules) >= limits.SCHEDULES_MAX:
            message = f"the limit of {limits.SCHEDULES_MAX} schedules is reached; delete some"
            refusal = Refusal(Code.RESOURCE_EXHAUSTED, "TOO_MANY_SCHEDULES", message)
        if refusal is not None:
            return refusal
        next_ms = first_tick(spec, now.log_ms)
        if known is not None and next_ms <= known.last_tick_ms:
            next_ms = 0  # only one instant can be in the past, and this schedule has been there
        return Decision(ScheduleSet(now.log_ms, spec, next_ms), spec.name)

    def delete(self, command: DeleteSchedule, now: Now) -> Decision | Refusal:
        """Its jobs stay."""
        if command.name not in self._book.schedules:
            return unknown_schedule(command.name)
        return Decision(ScheduleDeleted(now.log_ms, command.name))

    def pause(self, command: PauseSchedule, now: Now) -> Decision | Refusal:
        """What falls into a pause is passed over."""
        schedule = self._book.schedules.get(command.name)
        if schedule is None:
            return unknown_schedule(command.name)
        if schedule.is_paused == command.is_paused:
            return Decision(None)
        next_ms = schedule.next_ms
        if not command.is_paused and 0 < next_ms <= now.log_ms:
            next_ms = 0 if schedule.spec.at_ms else tick_after(schedule.spec, schedule.created_ms, now.log_ms)
        return Decision(SchedulePaused(now.log_ms, command.name, command.is_paused, next_ms))

    def trigger(self, command: TriggerSchedule, now: Now) -> Decision | Refusal:
        """A job now, beside the plan."""
        schedule = self._book.schedules.get(command.name)
        if schedule is None:
            return unknown_schedule(command.name)
        refusal = self._tasks.no_room(1, 1) or self._draining(schedule.spec)
        if refusal is not None:
            return refusal
        tick_ms = now.log_ms // _SECOND_MS * _SECOND_MS
        job = _job(schedule.spec, tick_ms, command.job_id, 0)
        event = Ticked(
            now.log_ms, command.name, tick_ms, TRIGGERED, schedule.next_ms, template=schedule.spec.template, job=job
        )
        return Decision(event, command.job_id)

    def tick(self, command: Tick, now: Now) -> Decision | Refusal:
        """The earliest tick that is due; the reply says whether there was one."""
        due_ms = self.next_due_ms()
        if due_ms is None or due_ms > now.log_ms:
            return Decision(None, reply=False)
        schedule = self._book.schedules[self._heap[0][1]]
        return self._tick(schedule, command.job_id, now)

    def _tick(self, schedule: Schedule, job_id: str, now: Now) -> Decision | Refusal:
        spec, tick_ms, missed = schedule.spec, schedule.next_ms, 0
        if now.log_ms - tick_ms > LATE_MS:
            wanted_ms = self._caught_up(schedule, now.log_ms)
            missed = _ticks_between(spec, tick_ms, wanted_ms or now.log_ms - LATE_MS)
            if not wanted_ms:
                next_ms = tick_after(spec, schedule.created_ms, now.log_ms - LATE_MS - 1)
                event = Ticked(now.log_ms, spec.name, tick_ms, MISSED, next_ms, missed)
                return Decision(event, reply=True)
            tick_ms = wanted_ms
        refusal = self._tasks.no_room(1, 1)
        if refusal is not None:
            return refusal
        next_ms = 0 if spec.at_ms else tick_after(spec, schedule.created_ms, tick_ms)
        last = self._book.jobs.get(schedule.last_job_id)
        is_busy = last is not None and last.state not in TERMINAL
        if (is_busy and spec.overlap == "skip") or self._draining(spec):
            return Decision(Ticked(now.log_ms, spec.name, tick_ms, SKIPPED, next_ms, missed), reply=True)
        canceled, canceled_state = "", 0
        if last is not None and is_busy and spec.overlap == "cancel_running" and not last.cancel_requested:
            canceled, canceled_state = last.id, CANCELED if last.state == QUEUED else RUNNING
        due_ms = tick_ms + jitter_ms(spec, tick_ms) if spec.jitter_ms else 0
        job = _job(spec, tick_ms, job_id, due_ms)
        event = Ticked(
            now.log_ms, spec.name, tick_ms, FIRED, next_ms, missed, spec.template, job, canceled, int(canceled_state)
        )
        return Decision(event, reply=True)

    def _caught_up(self, schedule: Schedule, now_ms: int) -> int:
        """Which of the missed ticks is made up for next, 0 if none is."""
        spec, first_ms = schedule.spec, schedule.next_ms
        if _is_last(spec):
            return first_ms  # it has no other, so it comes late rather than never
        if spec.catch_up == "none":
            return 0
        oldest_ms = now_ms - max(spec.catch_up_window_ms, LATE_MS)
        if spec.catch_up == "latest":
            last_ms = last_tick(schedule, now_ms)
            return last_ms if last_ms >= oldest_ms else 0
        if first_ms >= oldest_ms:
            return first_ms
        next_ms = tick_after(spec, schedule.created_ms, oldest_ms - 1)
        return next_ms if 0 < next_ms <= now_ms else 0

    def _draining(self, spec: ScheduleSpec) -> Refusal | None:
        if spec.template.queue not in self._book.queues_in(QueueMode.DRAINING):
            return None
        message = f"the queue {spec.template.queue!r} is draining and takes no new jobs"
        return Refusal(Code.FAILED_PRECONDITION, "QUEUE_DRAINING", message)

    # -- application

    def apply_set(self, event: ScheduleSet) -> None:
        """Makes or replaces a schedule; what it has done so far stays counted."""
        book, spec = self._book, event.spec
        before = book.schedules.get(spec.name)
        if before is not None:
            book.lift_schedule(before)
        schedule = Schedule(spec, event.at_ms, event.next_ms)
        if before is not None:
            schedule.last_tick_ms, schedule.last_job_id = before.last_tick_ms, before.last_job_id
            schedule.fired, schedule.skipped, schedule.missed = before.fired, before.skipped, before.missed
            schedule.is_paused = before.is_paused
        book.put_schedule(schedule)
        self._watch(schedule)

    def apply_deleted(self, event: ScheduleDeleted) -> None:
        """Forgets a schedule."""
        self._book.lift_schedule(self._book.schedules.pop(event.name))

    def apply_paused(self, event: SchedulePaused) -> None:
        """Pauses a schedule, or lets it go on."""
        schedule = self._book.schedules[event.name]
        self._book.lift_schedule(schedule)
        schedule.is_paused, schedule.next_ms = event.is_paused, event.next_ms
        self._book.put_schedule(schedule)
        self._watch(schedule)

    def apply_ticked(self, event: Ticked) -> None:
        """Makes the job, cancels the one before it if that is the rule, and moves on."""
        book = self._book
        schedule = book.schedules[event.name]
        book.lift_schedule(schedule)
        if event.canceled:
            reason = f"its schedule {event.name} made the next job"
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
        book.put_schedule(schedule)
        self._watch(schedule)

    def _watch(self, schedule: Schedule) -> None:
        if schedule.next_ms and not schedule.is_paused:
            heapq.heappush(self._heap, (schedule.next_ms, schedule.spec.name))
        if len(self._heap) > 2 * len(self._book.schedules) + 64:
            self._heap = sorted({entry for entry in self._heap if self._is_live(*entry)})


def first_tick(spec: ScheduleSpec, now_ms: int) -> int:
    """The first tick of a schedule that is made now."""
    return spec.at_ms or tick_after(spec, now_ms, now_ms)


def tick_after(spec: ScheduleSpec, anchor_ms: int, after_ms: int) -> int:
    """The first tick later than this, 0 if there is none. Intervals count from the anchor, in whole seconds."""
    if spec.at_ms:
        return spec.at_ms if spec.at_ms > after_ms else 0
    if not spec.every_ms:
        return 0 if _is_last(spec) else cron.next_after(spec.cron, spec.timezone, after_ms)
    anchor_ms = -(-anchor_ms // _SECOND_MS) * _SECOND_MS
    return anchor_ms + max(1, (after_ms - anchor_ms) // spec.every_ms + 1) * spec.every_ms


def _is_last(spec: ScheduleSpec) -> bool:
    """Whether there is no tick after the next: a one-shot, or what this installation cannot read any more.

    Time zone data comes and goes. A schedule without its zone ends with the tick that is planned; the server goes on.
    """
    return bool(spec.at_ms) or not (spec.every_ms or cron.is_readable(spec.cron, spec.timezone))


def ticks_after(spec: ScheduleSpec, anchor_ms: int, after_ms: int) -> Iterator[int]:
    """The ticks later than this, one after the other."""
    while after_ms := tick_after(spec, anchor_ms, after_ms):
        yield after_ms


def last_tick(schedule: Schedule, until_ms: int) -> int:
    """The last of the ticks from the next one on that is not later than this."""
    spec = schedule.spec
    if spec.every_ms:
        return schedule.next_ms + (until_ms - schedule.next_ms) // spec.every_ms * spec.every_ms
    return max(schedule.next_ms, cron.last_until(spec.cron, spec.timezone, until_ms))


def _ticks_between(spec: ScheduleSpec, first_ms: int, end_ms: int) -> int:
    """How many ticks there are from the first one on, and before the end."""
    if first_ms >= end_ms:
        return 0
    if spec.every_ms:
        return -(-(end_ms - first_ms) // spec.every_ms)
    return cron.count_between(spec.cron, spec.timezone, first_ms, end_ms)


def jitter_ms(spec: ScheduleSpec, tick_ms: int) -> int:
    """How much later the job of this tick is due; the same wherever it is computed."""
    draw = hashlib.sha256(f"{spec.name}:{tick_ms}".encode()).digest()[:8]
    return int.from_bytes(draw, "big") % (spec.jitter_ms + 1)


def _job(spec: ScheduleSpec, tick_ms: int, job_id: str, due_ms: int) -> NewJob:
    headers = ((SCHEDULE, spec.name), (SCHEDULED_FOR, cron.utc_text(tick_ms)))
    return NewJob(job_id, 0, spec.payload, due_ms, Extra(labels=spec.labels, headers=headers))


def unknown_schedule(name: str) -> Refusal:
    """No such schedule."""
    return Refusal(Code.NOT_FOUND, "SCHEDULE_NOT_FOUND", f"no schedule {name[: limits.NAME_CHARS_MAX]!r}")
