"""The times at which a cron expression fires, in the time zone of its schedule.

The functions are pure, except that they read the time zone database. Its content may differ between installations. So
the ledger calls these functions only to make a decision, and writes the result into an event; replay never calls them.

An expression has five fields with names, ranges, steps and lists, or is a nickname such as `@daily`, or has the two
fields `minute hour`. A local time that a clock change skips fires right after the gap, unless the hour field begins
with a star: then it fires only in hours that exist. A local time that occurs twice fires once, at its first occurrence.
If the minute or hour field begins with a star, it fires at both, because such a schedule follows elapsed time.

Invariants: the ticks of an expression are one strictly increasing sequence of UTC seconds. `next_after`, `last_until`
and `count_between` are views of this sequence and agree with each other from any starting point. The sequence is the
union of the ticks of all local days. Days around a clock change may share an instant or be out of order, so the
functions always check the neighbouring days too.
"""

from bisect import bisect_left, bisect_right
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSimError

from holdfast.core.cron_days import NEIGHBOURS, day_of, expression, is_quiet, ticks_of

_NAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_SHORT_FIELDS, _FIELDS = 2, 5
#: The allowed values of each field, by the field's name in CronSim's errors.
_RANGES = {
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31, and the month must have that day",
    "month": "1 to 12, or jan to dec",
    "day-of-week": "0 to 7, or sun to sat",
}
_CHARS_MAX = 512
_SECOND_MS = 1_000


@lru_cache(maxsize=1_024)
def canonical(text: str) -> str:
    """The expression as five fields; raises ValueError with the expected form for any other text."""
    if len(text) > _CHARS_MAX:
        raise ValueError(f"a text of at most {_CHARS_MAX} characters")
    fields = _NAMES.get(text.strip().lower(), text).split()
    if len(fields) == _SHORT_FIELDS:
        fields += ["*", "*", "*"]
    if len(fields) != _FIELDS:
        raise ValueError(f"five fields, two fields (minute hour) or one of {', '.join(_NAMES)}")
    five = " ".join(fields)
    try:
        expression(five)
    except CronSimError as error:
        raise ValueError(f"a cron expression ({_complaint(str(error))})") from error
    return five


def _complaint(text: str) -> str:
    """Names the invalid field and its allowed values."""
    complaint = text[:1].lower() + text[1:]
    allowed = _RANGES.get(complaint.removeprefix("bad "))
    return f"{complaint}: {allowed}" if allowed else complaint


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    """The names of all time zones; cached, because reading them walks through directories."""
    return frozenset(available_timezones())


@lru_cache(maxsize=1_024)
def zone(name: str) -> ZoneInfo:
    """The time zone; raises ValueError for a name that is not in the database."""
    if name not in _zone_names():
        raise ValueError("the name of a time zone, such as Europe/Paris")
    return ZoneInfo(name)


def is_readable(text: str, timezone: str) -> bool:
    """Whether this installation can read the expression and has the time zone."""
    try:
        canonical(text)
        zone(timezone)
    except ValueError:
        return False
    return True


def next_after(text: str, timezone: str, after_ms: int) -> int:
    """The first tick after this instant; 0 if there is none within fifty years."""
    five, place, after_s = canonical(text), zone(timezone), max(0, after_ms) // _SECOND_MS
    days = expression(five)
    for day in days.days(day_of(place, after_s) - NEIGHBOURS, 1):
        if _first_after(five, place, day, after_s):
            found = [_first_after(five, place, near, after_s) for near in days.near(day, 1)]
            return min(filter(None, found)) * _SECOND_MS
    return 0


def _first_after(five: str, place: ZoneInfo, day: int, after_s: int) -> int:
    base_s, ticks = ticks_of(five, place, day)
    index = bisect_right(ticks, after_s - base_s)
    return base_s + ticks[index] if index < len(ticks) else 0


def last_until(text: str, timezone: str, until_ms: int) -> int:
    """The last tick at or before this instant; 0 if there is none within fifty years."""
    five, place, until_s = canonical(text), zone(timezone), until_ms // _SECOND_MS
    days = expression(five)
    for day in days.days(day_of(place, until_s) + NEIGHBOURS, -1):
        if _last_until(five, place, day, until_s):
            return max(_last_until(five, place, near, until_s) for near in days.near(day, -1)) * _SECOND_MS
    return 0


def _last_until(five: str, place: ZoneInfo, day: int, until_s: int) -> int:
    base_s, ticks = ticks_of(five, place, day)
    index = bisect_right(ticks, until_s - base_s)
    return max(0, base_s + ticks[index - 1]) if index else 0


def count_between(text: str, timezone: str, first_ms: int, end_ms: int) -> int:
    """The number of ticks from `first_ms` (inclusive) to `end_ms` (exclusive)."""
    five, place = canonical(text), zone(timezone)
    first_s, end_s = -(-first_ms // _SECOND_MS), -(-end_ms // _SECOND_MS)
    last_day, count = day_of(place, end_s) + NEIGHBOURS, 0
    near_changes: set[int] = set()
    for day in expression(five).days(day_of(place, first_s) - NEIGHBOURS, 1):
        if day > last_day:
            break
        base_s, ticks = ticks_of(five, place, day)
        inside = range(bisect_left(ticks, first_s - base_s), bisect_left(ticks, end_s - base_s))
        if is_quiet(place, day):
            count += len(inside)
        else:
            near_changes.update(base_s + ticks[index] for index in inside)
    return count + len(near_changes)


def utc_text(at_ms: int) -> str:
    """The instant in ISO 8601 form, such as 2026-03-29T01:00:00Z."""
    return datetime.fromtimestamp(at_ms // _SECOND_MS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
