"""A second implementation of cron: its own parser, and a walk over every minute of UTC.

The walk works in the opposite direction to the product: it converts each minute of UTC to local time. It supports five
fields with numbers, names, ranges, steps and lists, and nothing else; callers pass only valid expressions.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

MINUTE_S = 60
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
#: The valid values of minute, hour, day, month and weekday.
RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
#: The names of each field's values, from 0 on.
NAMES: tuple[tuple[str, ...], ...] = ((), (), (), ("", *MONTHS), DAYS)
#: Zones, each with an instant at which its clock changes; some without a change.
PLACES = (
    ("UTC", datetime(2028, 2, 29, tzinfo=UTC)),
    ("Europe/Paris", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("Europe/Paris", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 8, 7, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 6, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),
    ("America/Havana", datetime(2026, 11, 1, 5, tzinfo=UTC)),
    ("America/Sao_Paulo", datetime(2018, 11, 4, 3, tzinfo=UTC)),
    ("Antarctica/Troll", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("Africa/Casablanca", datetime(2026, 2, 15, 2, tzinfo=UTC)),
    ("Asia/Pyongyang", datetime(2018, 5, 4, 15, tzinfo=UTC)),
    ("Asia/Kathmandu", datetime(1985, 12, 31, 18, 30, tzinfo=UTC)),
    ("America/Havana", datetime(2026, 3, 8, 5, tzinfo=UTC)),
    ("America/St_Johns", datetime(2010, 11, 7, 2, 31, tzinfo=UTC)),
    ("Asia/Tokyo", datetime(2026, 2, 28, 15, tzinfo=UTC)),
)
_WEEKDAY = 4
_MINUTE = timedelta(minutes=1)


class Field(NamedTuple):
    """One field: its values, and whether it begins with a star."""

    values: frozenset[int]
    is_star: bool


def fields_of(expression: str) -> list[Field]:
    """The five fields of an expression."""
    return [_field(text, number) for number, text in enumerate(expression.split())]


def ticks(fields: Sequence[Field], zone: ZoneInfo, after_s: int, until_s: int) -> Iterator[int]:
    """The minutes of UTC in which it fires, after `after_s` and up to and including `until_s`."""
    minute_s = after_s // MINUTE_S * MINUTE_S + MINUTE_S
    before = datetime.fromtimestamp(minute_s - MINUTE_S, zone)
    while minute_s <= until_s:
        now = datetime.fromtimestamp(minute_s, zone)
        if _fires(fields, before, now):
            yield minute_s
        before = now
        minute_s += MINUTE_S


def _fires(fields: Sequence[Field], before: datetime, now: datetime) -> bool:
    """Whether it fires now: this local time matches, or one that the clock change just skipped does."""
    minute, hour, *_ = fields
    is_wall = not (minute.is_star or hour.is_star)
    if _matches(fields, now) and not (is_wall and now.fold):
        return True
    shown_before, shown = before.replace(tzinfo=None), now.replace(tzinfo=None)
    lost = 0 if hour.is_star else max(0, (shown - shown_before) // _MINUTE - 1)
    return any(_matches(fields, shown_before + _MINUTE * count) for count in range(1, lost + 1))


def _matches(fields: Sequence[Field], shown: datetime) -> bool:
    minute, hour, day, month, weekday = fields
    if shown.minute not in minute.values or shown.hour not in hour.values or shown.month not in month.values:
        return False
    is_day, is_weekday = shown.day in day.values, shown.isoweekday() % 7 in weekday.values
    # If both day and weekday are restricted, one match is enough.
    return is_day and is_weekday if day.is_star or weekday.is_star else is_day or is_weekday


def _field(text: str, number: int) -> Field:
    values = {value for part in text.split(",") for value in _part(part, number)}
    # Sunday is both 0 and 7.
    return Field(frozenset(value % 7 if number == _WEEKDAY else value for value in values), text.startswith("*"))


def _part(text: str, number: int) -> range:
    span, _, step = text.partition("/")
    first, _, last = span.partition("-")
    low, high = RANGES[number]
    if span != "*":
        low = _value(first, number)
        high = _value(last, number) if last else low
    return range(low, high + 1, int(step or 1))


def _value(text: str, number: int) -> int:
    return int(text) if text.isdigit() else NAMES[number].index(text)
