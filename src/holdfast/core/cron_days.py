"""The ticks of a cron expression, one local day at a time.

Invariants: the ticks of a day are a strictly increasing sequence of UTC seconds and depend only on the expression, the
zone and the day. If the UTC offset is the same all day, the ticks are computed by arithmetic. For a day with a clock
change, each local time of the expression is converted on its own.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import MAXYEAR, UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim

#: A clock change moves the ticks of a day by at most this many days: the largest one skipped or repeated a whole day.
NEIGHBOURS = 2

#: A range of one value with a step, such as `5-5/10`. CronSim would read it as `5/10`: every value from 5 on.
_LONE_RANGE = re.compile(r"\b([0-9A-Za-z]+)-\1/0*[1-9][0-9]*\b")
_DAY_S, _HOUR_S, _MINUTE_S = 86_400, 3_600, 60
_EPOCH_DAY = date(1970, 1, 1).toordinal()
#: The longest gap that is searched for a match. No date of the calendar recurs less often than every forty years.
_SPAN_DAYS = 50 * 366
#: No caller passes times before 1970, and every zone can represent these days and their neighbours.
_FIRST_DAY, _LAST_DAY = date(1969, 12, 28).toordinal(), date(MAXYEAR - 1, 12, 31).toordinal()
_FIRST_S, _LAST_S = (_FIRST_DAY - _EPOCH_DAY) * _DAY_S, (_LAST_DAY - _EPOCH_DAY) * _DAY_S


class CronExpression:
    """A parsed cron expression of five fields; raises CronSimError if it cannot be parsed."""

    __slots__ = ("_months", "_rule", "has_fixed_hour", "is_wall", "seconds")

    def __init__(self, five: str) -> None:
        self._rule = rule = CronSim(_LONE_RANGE.sub(r"\1", five), datetime(2000, 1, 1, tzinfo=UTC))
        minute, hour, *_ = five.split()
        #: Whether the expression follows local wall-clock time; otherwise it follows elapsed time.
        self.is_wall = not minute.startswith("*") and not hour.startswith("*")
        self.has_fixed_hour = not hour.startswith("*")
        self._months = rule.months
        #: The local times of a matching day, in seconds from midnight.
        self.seconds = tuple(h * _HOUR_S + m * _MINUTE_S for h in sorted(rule.hours) for m in sorted(rule.minutes))

    def days(self, ordinal: int, step: int) -> Iterator[int]:
        """The matching days from this one on, forward (1) or backward (-1), over fifty years."""
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
        """The given matching day, then those of its neighbours in this direction that match too."""
        yield ordinal
        for other in range(ordinal + step, ordinal + step * (NEIGHBOURS + 1), step):
            day = date.fromordinal(other)
            if day.month in self._months and self._rule.match_day(day):
                yield other


def _next_month(day: date, step: int) -> int:
    """The first day of the next month (step 1) or the last day of the previous month (step -1)."""
    first = day.replace(day=1)
    return (first + timedelta(days=32)).replace(day=1).toordinal() if step > 0 else first.toordinal() - 1


@lru_cache(maxsize=256)
def expression(five: str) -> CronExpression:
    """The parsed expression, from a cache."""
    return CronExpression(five)


def day_of(zone: ZoneInfo, at_s: int) -> int:
    """The local day of an instant, as a proleptic ordinal."""
    return datetime.fromtimestamp(min(max(at_s, _FIRST_S), _LAST_S), zone).toordinal()


def ticks_of(five: str, zone: ZoneInfo, day: int) -> tuple[int, Sequence[int]]:
    """The ticks of a matching day: a base in UTC seconds, and the offsets to add to it."""
    offset_s = _offset_s(zone, day)
    if offset_s is None:
        return 0, _ticks_of_change(five, zone, day)
    return (day - _EPOCH_DAY) * _DAY_S - offset_s, expression(five).seconds


def is_quiet(zone: ZoneInfo, day: int) -> bool:
    """Whether no clock change is near, so that no other day can yield a tick of this day."""
    offsets = {_offset_s(zone, near) for near in range(day - NEIGHBOURS, day + NEIGHBOURS + 1)}
    return len(offsets) == 1 and None not in offsets


@lru_cache(maxsize=4_096)
def _offset_s(zone: ZoneInfo, day: int) -> int | None:
    """The zone's UTC offset if it is constant over the day, else None. No day has two clock changes."""
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
        if first_s <= second_s:  # the local time exists, once or twice
            ticks |= {first_s} if fields.is_wall else {first_s, second_s}
        elif fields.has_fixed_hour:
            ticks.add(_change_between(zone, second_s, first_s))
    return tuple(sorted(ticks))


def _ahead_s(zone: ZoneInfo, local: datetime, fold: int) -> int:
    offset = local.replace(tzinfo=zone, fold=fold).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def _change_between(zone: ZoneInfo, before_s: int, after_s: int) -> int:
    """The first instant with the later offset, found by bisection: the clock resumes there after a gap."""
    old = datetime.fromtimestamp(before_s, zone).utcoffset()
    while after_s - before_s > 1:
        middle_s = (before_s + after_s) // 2
        if datetime.fromtimestamp(middle_s, zone).utcoffset() == old:
            before_s = middle_s
        else:
            after_s = middle_s
    return after_s
