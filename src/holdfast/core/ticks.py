"""Ticks: the times at which a schedule creates a job, and the handling of a due tick.

Every backend that keeps schedules uses these functions, so that all behave alike: the ledger on its state, the pipeline
on database rows. They depend only on a schedule and on plain values: the instant, and whether its last job has ended.

Invariants: the next planned tick is later than the processed one, so that no tick is processed twice; every tick that
is passed over is counted. A tick that is processed more than `LATE_MS` late counts as missed: no server was running, or
the clock jumped.
"""

import hashlib
from collections.abc import Iterator
from itertools import islice

import msgspec

from holdfast import limits
from holdfast.core import cron
from holdfast.core.commands import Refusal
from holdfast.core.model import SCHEDULE, SCHEDULED_FOR, Extra, NewJob, Schedule, ScheduleSpec
from holdfast.core.schedule_checks import check_spec
from holdfast.core.validation import invalid
from holdfast.errors import Code

LATE_MS = 60_000
FIRED, SKIPPED, MISSED, TRIGGERED = "fired", "skipped", "missed", "triggered"

_SECOND_MS = 1_000


class DueTick(msgspec.Struct, frozen=True):
    """The tick to process, and the next one. `missed` counts passed-over ticks, with this one if it `is_missed`."""

    tick_ms: int
    next_ms: int
    missed: int = 0
    is_missed: bool = False


# -- plans


def is_planned(known: Schedule | None, spec: ScheduleSpec) -> bool:
    """Whether setting a schedule changes nothing: it exists with this spec, and its plan has not ended."""
    return known is not None and known.spec == spec and bool(known.next_ms or spec.at_ms)


def check_plan(spec: ScheduleSpec, now_ms: int, *, is_new: bool, count: int) -> Refusal | None:
    """The refusal of a schedule, if the spec is invalid or `count` has reached the limit."""
    refusal = check_spec(spec, now_ms)
    if refusal is None and is_new and count >= limits.SCHEDULES_MAX:
        message = f"the limit of {limits.SCHEDULES_MAX} schedules is reached; delete schedules that are not needed"
        refusal = Refusal(Code.RESOURCE_EXHAUSTED, "TOO_MANY_SCHEDULES", message)
    return refusal


def planned(known: Schedule | None, spec: ScheduleSpec, now_ms: int) -> int:
    """The first tick of a schedule that is created or replaced now; 0 if there is none."""
    next_ms = first_tick(spec, now_ms)
    if known is not None and next_ms <= known.last_tick_ms:
        next_ms = 0  # only a one-shot time can be in the past, and it has fired already
    return next_ms


def resumed(schedule: Schedule, now_ms: int) -> int:
    """The next tick of a schedule that is resumed now; ticks during the pause are passed over."""
    spec, next_ms = schedule.spec, schedule.next_ms
    if 0 < next_ms <= now_ms:
        next_ms = 0 if spec.at_ms else tick_after(spec, schedule.created_ms, now_ms)
    return next_ms


# -- due ticks


def due_tick(schedule: Schedule, now_ms: int) -> DueTick:
    """The tick to process for a schedule whose next tick is due."""
    spec, tick_ms, missed = schedule.spec, schedule.next_ms, 0
    if now_ms - tick_ms > LATE_MS:
        wanted_ms = _caught_up(schedule, now_ms)
        missed = _ticks_between(spec, tick_ms, wanted_ms or now_ms - LATE_MS)
        if not wanted_ms:
            next_ms = tick_after(spec, schedule.created_ms, now_ms - LATE_MS - 1)
            return DueTick(tick_ms, next_ms, missed, is_missed=True)
        tick_ms = wanted_ms
    return DueTick(tick_ms, 0 if spec.at_ms else tick_after(spec, schedule.created_ms, tick_ms), missed)


def is_skipped(spec: ScheduleSpec, *, is_busy: bool, is_draining: bool) -> bool:
    """Whether a tick creates no job: the last job has not ended and `overlap` is `skip`, or the queue is draining."""
    return (is_busy and spec.overlap == "skip") or is_draining


def is_canceling(spec: ScheduleSpec, *, is_busy: bool) -> bool:
    """Whether a tick that creates a job cancels the previous one."""
    return is_busy and spec.overlap == "cancel_running"


def cancel_reason(name: str) -> str:
    """The cancel reason of the previous job."""
    return f"its schedule {name} made the next job"


def job_of_tick(spec: ScheduleSpec, tick_ms: int, job_id: str) -> NewJob:
    """The job that a tick creates."""
    return _job(spec, tick_ms, job_id, tick_ms + jitter_ms(spec, tick_ms) if spec.jitter_ms else 0)


def job_of_trigger(spec: ScheduleSpec, now_ms: int, job_id: str) -> NewJob:
    """The job that a trigger creates now, independent of the plan."""
    return _job(spec, trigger_tick(now_ms), job_id, 0)


def trigger_tick(now_ms: int) -> int:
    """The tick time of a triggered job: the current second."""
    return now_ms // _SECOND_MS * _SECOND_MS


def _job(spec: ScheduleSpec, tick_ms: int, job_id: str, due_ms: int) -> NewJob:
    headers = ((SCHEDULE, spec.name), (SCHEDULED_FOR, cron.utc_text(tick_ms)))
    return NewJob(job_id, 0, spec.payload, due_ms, Extra(labels=spec.labels, headers=headers))


def _caught_up(schedule: Schedule, now_ms: int) -> int:
    """The missed tick to fire next; 0 if there is none."""
    spec, first_ms = schedule.spec, schedule.next_ms
    if _is_last(spec):
        return first_ms  # there is no later tick, so this one fires late rather than never
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


# -- refusals


def draining_queue(queue: str) -> Refusal:
    """The refusal of a trigger while the queue is draining; ticks are skipped instead."""
    return Refusal(
        Code.FAILED_PRECONDITION,
        "QUEUE_DRAINING",
        f"the queue {queue!r} is draining and takes no new jobs; try again once it is open",
    )


def unknown_schedule(name: str) -> Refusal:
    """The refusal of an unknown schedule name."""
    return Refusal(
        Code.NOT_FOUND,
        "SCHEDULE_NOT_FOUND",
        f"no schedule {name[: limits.NAME_CHARS_MAX]!r}; `holdfast schedule list` shows all schedules",
    )


# -- the sequence of ticks


def first_tick(spec: ScheduleSpec, now_ms: int) -> int:
    """The first tick of a schedule that is created now."""
    return spec.at_ms or tick_after(spec, now_ms, now_ms)


def tick_after(spec: ScheduleSpec, anchor_ms: int, after_ms: int) -> int:
    """The first tick after this instant, or 0. Intervals count from the anchor, rounded up to a whole second."""
    if spec.at_ms:
        return spec.at_ms if spec.at_ms > after_ms else 0
    if not spec.every_ms:
        return 0 if _is_last(spec) else cron.next_after(spec.cron, spec.timezone, after_ms)
    anchor_ms = -(-anchor_ms // _SECOND_MS) * _SECOND_MS
    return anchor_ms + max(1, (after_ms - anchor_ms) // spec.every_ms + 1) * spec.every_ms


def _is_last(spec: ScheduleSpec) -> bool:
    """Whether no tick follows the next one: a one-shot schedule, or one that this installation cannot read.

    Time zone data may be removed. A schedule without its zone ends with the planned tick; the server keeps running.
    """
    return bool(spec.at_ms) or not (spec.every_ms or cron.is_readable(spec.cron, spec.timezone))


def ticks_after(spec: ScheduleSpec, anchor_ms: int, after_ms: int) -> Iterator[int]:
    """The ticks after this instant, in order."""
    while after_ms := tick_after(spec, anchor_ms, after_ms):
        yield after_ms


def preview(spec: ScheduleSpec, now_ms: int, after_ms: int, count: int) -> list[int] | Refusal:
    """The next ticks after this instant (0: now) of a schedule, as if it were created now."""
    if not 0 < count <= limits.PREVIEW_TICKS_MAX:
        rule = f"from 1 to {limits.PREVIEW_TICKS_MAX}"
        return invalid("COUNT_INVALID", f"the number of ticks must be {rule}, got {count}")
    return check_spec(spec, now_ms) or list(islice(ticks_after(spec, now_ms, after_ms or now_ms), count))


def last_tick(schedule: Schedule, until_ms: int) -> int:
    """The last tick at or before this instant, not earlier than the schedule's next tick."""
    spec = schedule.spec
    if spec.every_ms:
        return schedule.next_ms + (until_ms - schedule.next_ms) // spec.every_ms * spec.every_ms
    return max(schedule.next_ms, cron.last_until(spec.cron, spec.timezone, until_ms))


def _ticks_between(spec: ScheduleSpec, first_ms: int, end_ms: int) -> int:
    """The number of ticks from `first_ms` (inclusive) to `end_ms` (exclusive)."""
    if first_ms >= end_ms:
        return 0
    if spec.every_ms:
        return -(-(end_ms - first_ms) // spec.every_ms)
    return cron.count_between(spec.cron, spec.timezone, first_ms, end_ms)


def jitter_ms(spec: ScheduleSpec, tick_ms: int) -> int:
    """The extra delay of this tick's job, derived from the schedule's name and the tick."""
    draw = hashlib.sha256(f"{spec.name}:{tick_ms}".encode()).digest()[:8]
    return int.from_bytes(draw, "big") % (spec.jitter_ms + 1)
