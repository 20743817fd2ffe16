"""Validation of schedules: pure checks that return a refusal with one sentence."""

from holdfast import limits
from holdfast.core import cron
from holdfast.core.commands import Refusal
from holdfast.core.model import Extra, ScheduleSpec
from holdfast.core.validation import check_extra, check_name, check_template, expected, invalid

CATCH_UPS = ("none", "latest", "all")
OVERLAPS = ("allow", "skip", "cancel_running")

_SECOND_MS = 1_000
#: The last second of the year 9999, the limit of Python's `datetime`.
_AT_MS_MAX = 253_402_300_799_000


def check_spec(spec: ScheduleSpec, now_ms: int) -> Refusal | None:
    """The first problem of a schedule, or None."""
    return (
        check_name("the name of the schedule", spec.name, "SCHEDULE_NAME_INVALID")
        or check_template(spec.template)
        or _check_payload(spec)
        or check_extra(Extra(labels=spec.labels))
        or _check_time(spec, now_ms)
        or _check_rules(spec)
    )


def _check_payload(spec: ScheduleSpec) -> Refusal | None:
    if len(spec.payload) <= limits.PAYLOAD_BYTES_MAX:
        return None
    rule = f"at most {limits.PAYLOAD_BYTES_MAX} bytes"
    return invalid("PAYLOAD_TOO_LARGE", f"the payload must be {rule}, got {len(spec.payload)}")


def _check_time(spec: ScheduleSpec, now_ms: int) -> Refusal | None:
    if sum(map(bool, (spec.cron, spec.every_ms, spec.at_ms))) != 1:
        return invalid("SCHEDULE_TIME_INVALID", "expected exactly one of cron, every and at; set one of them")
    try:
        cron.zone(spec.timezone)
    except ValueError as error:
        return invalid("TIMEZONE_INVALID", expected("the time zone", str(error), spec.timezone))
    if spec.cron:
        return _check_cron(spec, now_ms)
    return _check_every(spec.every_ms) if spec.every_ms else _check_at(spec.at_ms)


def _check_every(every_ms: int) -> Refusal | None:
    if every_ms % _SECOND_MS == 0 and limits.EVERY_MS_MIN <= every_ms <= limits.DELAY_MS_MAX:
        return None
    rule = "a whole number of seconds, from one second to a year"
    return invalid("EVERY_INVALID", expected("every", rule, f"{every_ms} ms"))


def _check_at(at_ms: int) -> Refusal | None:
    if at_ms % _SECOND_MS == 0 and 0 < at_ms <= _AT_MS_MAX:
        return None
    return invalid("AT_INVALID", expected("at", "a whole second from 1970 to 9999, in milliseconds", at_ms))


def _check_cron(spec: ScheduleSpec, now_ms: int) -> Refusal | None:
    try:
        cron.canonical(spec.cron)
    except ValueError as error:
        return invalid("CRON_INVALID", expected("cron", str(error), spec.cron))
    if not cron.next_after(spec.cron, spec.timezone, now_ms):
        return invalid("CRON_INVALID", expected("cron", "an expression that fires within fifty years", spec.cron))
    return None


def _check_rules(spec: ScheduleSpec) -> Refusal | None:
    if spec.catch_up not in CATCH_UPS:
        return invalid("CATCH_UP_INVALID", expected("catch_up", f"one of {', '.join(CATCH_UPS)}", spec.catch_up))
    if spec.overlap not in OVERLAPS:
        return invalid("OVERLAP_INVALID", expected("overlap", f"one of {', '.join(OVERLAPS)}", spec.overlap))
    for what, value in (("catch_up_window_ms", spec.catch_up_window_ms), ("jitter_ms", spec.jitter_ms)):
        if not 0 <= value <= limits.DELAY_MS_MAX:
            return invalid("OPTION_OUT_OF_RANGE", expected(what, f"from 0 to {limits.DELAY_MS_MAX}", value))
    return None
