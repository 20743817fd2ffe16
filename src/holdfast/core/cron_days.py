"""The ticks of a cron expression, one local day at a time.

Invariants: what a day gives is a strictly growing sequence of UTC seconds, and depends on nothing but the expression,
the zone and the day. A day whose clock stands at one offset throughout is arithmetic; the others are written out,
minute by minute.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import MAXYEAR, UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim

#: A clock change moves what a day gives by so many days at most: the widest left out or repeated a whole one.
NEIGHBOURS = 2

#: A range of one with a step, which CronSim would take for all from there on.
_LONE_RANGE = re.compile(r"\b([0-9A-Za-z]+)-\1/0*[1-9][0-9]*\b")
_DAY_S, _HOUR_S, _MINUTE_S = 86_400, 3_600, 60
_EPOCH_DAY = date(1970, 1, 1).toordinal()
#: How long an expression may have nothing to say; no calendar makes a day wait longer than forty years.
_SPAN_DAYS = 50 * 366
#: Nothing is asked about times before 1970, and every zone can name these days and their neighbours.
_FIRST_DAY, _LAST_DAY = date(1969, 12, 28).toordinal(), date(MAXYEAR - 1, 12, 31).toordinal()
_FIRST_S, _LAST_S = (_FIRST_DAY - _EPOCH_DAY) * _DAY_S, (_LAST_DAY - _EPOCH_DAY) * _DAY_S


class Expression:
    """Five fields that were read; raises CronSimError for what cannot be read."""

    __slots__ = ("_months", "_rule", "has_fixed_hour", "is_wall", "seconds")

    def __init__(self, five: str) -> None:
        self._rule = rule = CronSim(_LONE_RANGE.sub(r"\1", five), datetime(2000, 1, 1, tzinfo=UTC))
        minute, hour, *_ = five.split()
        #: Goes by the clock on the wall; else by what really passes.
        self.is_wall = not minute.startswith("*") and not hour.startswith("*")
        self.has_fixed_hour = not hour.startswith("*")
        self._months = rule.months
        #: Of a matching day, from its beginning.
        self.seconds = tuple(h * _HOUR_S + m * _MINUTE_S for h in sorted(rule.hours) for m in sorted(rule.minutes))

    def days(self, ordinal: int, step: int) -> Iterator[int]:
        """The matching days from this one on, forward (1) or backward (-1), for fifty years."""
        end = ordinal + step * _SPAN_DAYS
        while (end - ordinal) * step >= 0 and _FIRST_DAY <= ordinal <= _LAST_DAY:
            day = date.fromordinal(ordinal)
            if day.month not in self._months:
                ordinal = _next_month(day, step)
                continue
            if self._rule.match_day(day):
                yield ordinal
            ordinal += step

    def near(self, ordinal: int, step: int) -> Iterator[int]:
        """Of a matching day and its neighbours in this direction, those that match."""
        yield ordinal
        for other in range(ordinal + step, ordinal + step * (NEIGHBOURS + 1), step):
            day = date.fromordinal(other)
            if day.month in self._months and self._rule.match_day(day):
                yield other


def _next_month(day: date, step: int) -> int:
    """The first day of the month after, or the last one of the month before."""
    first = day.replace(day=1)
    return (first + timedelta(days=32)).replace(day=1).toordinal() if step > 0 else first.toordinal() - 1


@lru_cache(maxsize=256)
def expression(five: str) -> Expression:
    """Read once."""
    return Expression(five)


def day_of(zone: ZoneInfo, at_s: int) -> int:
    """The local day of an instant."""
    return datetime.fromtimestamp(min(max(at_s, _FIRST_S), _LAST_S), zone).toordinal()


def ticks_of(five: str, zone: ZoneInfo, day: int) -> tuple[int, Sequence[int]]:
    """A base, and what to add to it: the ticks of a day that matches, in UTC seconds."""
    offset_s = _offset_s(zone, day)
    if offset_s is None:
        return 0, _ticks_of_change(five, zone, day)
    return (day - _EPOCH_DAY) * _DAY_S - offset_s, expression(five).seconds


def is_quiet(zone: ZoneInfo, day: int) -> bool:
    """Whether no clock change is near: then no other day gives an instant of this one."""
    offsets = {_offset_s(zone, near) for near in range(day - NEIGHBOURS, day + NEIGHBOURS + 1)}
    return len(offsets) == 1 and None not in offsets


@lru_cache(maxsize=4_096)
def _offset_s(zone: ZoneInfo, day: int) -> int | None:
    """How far the local clock is ahead of UTC all day long; None if that changes. No day has two changes."""
    ends = datetime.fromordinal(day), datetime.fromordinal(day + 1)
    offsets = {_ahead_s(zone, end, fold) for end in ends for fold in (0, 1)}
    return offsets.pop() if len(offsets) == 1 else None


@lru_cache(maxsize=64)
def _ticks_of_change(five: str, zone: ZoneInfo, day: int) -> tuple[int, ...]:
    fields, start = expression(five), datetime.fromordinal(day)
    ticks: set[int] = set()
    for second in fields.seconds:
        local, local_s = start + timedelta(seconds=second), (day - _EPOCH_DAY) * _DAY_S + second
        first_s, second_s = local_s - _ahead_s(zone, local, 0), local_s - _ahead_s(zone, local, 1)
        if first_s <= second_s:  # it exists, once or twice
            ticks |= {first_s} if fields.is_wall else {first_s, second_s}
        elif fields.has_fixed_hour:
            ticks.add(_change_between(zone, second_s, first_s))
    return tuple(sorted(ticks))


def _ahead_s(zone: ZoneInfo, local: datetime, fold: int) -> int:
    offset = local.replace(tzinfo=zone, fold=fold).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def _change_between(zone: ZoneInfo, before_s: int, after_s: int) -> int:
    """The first instant with the later offset: after a gap, the clock goes on from there."""
    old = datetime.fromtimestamp(before_s, zone).utcoffset()
    while after_s - before_s > 1:
        middle_s = (before_s + after_s) // 2
        if datetime.fromtimestamp(middle_s, zone).utcoffset() == old:
            before_s = middle_s
        else:
            after_s = middle_s
    return after_s
