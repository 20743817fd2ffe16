"""What cron means, said a second time: fields that are read here, and a walk over every minute of UTC.

The walk goes the other way than the product does: from each minute to what the clocks on the wall show. It knows five
fields with numbers, names, ranges, steps and lists, and nothing else; whoever uses it asks only for what is readable.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

MINUTE_S = 60
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
#: What minute, hour, day, month and weekday may be.
RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
#: The names of each field's values, from 0 on.
NAMES: tuple[tuple[str, ...], ...] = ((), (), (), ("", *MONTHS), DAYS)
#: Zones with instants around which their clocks change, or nothing happens.
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
    """One field: what it holds, and whether it begins with a star."""

    values: frozenset[int]
    is_star: bool


def fields_of(expression: str) -> list[Field]:
    """The five fields of an expression."""
    return [_field(text, number) for number, text in enumerate(expression.split())]


def ticks(fields: Sequence[Field], zone: ZoneInfo, after_s: int, until_s: int) -> Iterator[int]:
    """The minutes of UTC in which it fires, from the first one after an instant up to another, included."""
    minute_s = after_s // MINUTE_S * MINUTE_S + MINUTE_S
    before = datetime.fromtimestamp(minute_s - MINUTE_S, zone)
    while minute_s <= until_s:
        now = datetime.fromtimestamp(minute_s, zone)
        if _fires(fields, before, now):
            yield minute_s
        before = now
        minute_s += MINUTE_S


def _fires(fields: Sequence[Field], before: datetime, now: datetime) -> bool:
    """Whether it fires now: because of what this minute is called, or of what was never called anything."""
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
    # Where both are said, either will do.
    return is_day and is_weekday if day.is_star or weekday.is_star else is_day or is_weekday


def _field(text: str, number: int) -> Field:
    values = {value for part in text.split(",") for value in _part(part, number)}
    # Sunday is 0, and 7.
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
