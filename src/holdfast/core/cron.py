"""When a cron expression fires next, in the time zone of its schedule.

Pure but for the time zone database, which is data of the installation and may differ between two of them: so this is
asked when something is decided, and the answer is written down; replay asks nothing.

Five fields with names, ranges, steps and lists, the usual names such as `@daily`, or the two fields `minute hour`. A
local time that a clock change leaves out fires right after the gap. One that comes twice fires once, at the first,
unless minute or hour begin with a star: such a schedule goes by what really passes.
"""

from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

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
_SECOND_MS = 1_000
_HOUR_MS = 3_600 * _SECOND_MS
_DAY_MS = 24 * _HOUR_MS
#: An hour, a day, a month, a year; and as long as a leap day may have to wait.
_SPANS_MS = (_HOUR_MS, _DAY_MS, 31 * _DAY_MS, 366 * _DAY_MS, 8 * 366 * _DAY_MS)


@lru_cache(maxsize=1_024)
def canonical(expression: str) -> str:
    """The five fields; raises ValueError, with a sentence, for what is none of the three forms."""
    fields = _NAMES.get(expression.strip().lower(), expression).split()
    if len(fields) == _SHORT_FIELDS:
        fields += ["*", "*", "*"]
    if len(fields) != _FIELDS:
        raise ValueError(f"five fields, two fields (minute hour) or one of {', '.join(_NAMES)}")
    five = " ".join(fields)
    try:
        next(CronSim(five, datetime(2000, 1, 1, tzinfo=UTC)), None)
    except CronSimError as error:
        raise ValueError(f"a cron expression ({str(error)[:1].lower()}{str(error)[1:]})") from error
    except (RecursionError, OverflowError) as error:
        raise ValueError("a cron expression") from error
    return five


@lru_cache(maxsize=1_024)
def zone(name: str) -> ZoneInfo:
    """The time zone; raises ValueError for a name that the database does not have."""
    if name not in available_timezones():
        raise ValueError("the name of a time zone, such as Europe/Paris")
    return ZoneInfo(name)


def next_after(expression: str, timezone: str, after_ms: int) -> int:
    """The first tick later than this, 0 if there is none within fifty years."""
    start = datetime.fromtimestamp(after_ms // _SECOND_MS, zone(timezone))
    for tick in CronSim(canonical(expression), start):
        # Out of a fold or a gap, the same instant may come again.
        tick_ms = int(tick.timestamp()) * _SECOND_MS
        if tick_ms > after_ms:
            return tick_ms
    return 0


def last_until(expression: str, timezone: str, until_ms: int) -> int:
    """The last tick not later than this, 0 if there is none within eight years.

    Found by going forward, from further and further back: going backward misses what a fold repeats.
    """
    for span_ms in _SPANS_MS:
        found, tick_ms = 0, next_after(expression, timezone, max(0, until_ms - span_ms))
        while 0 < tick_ms <= until_ms:
            found, tick_ms = tick_ms, next_after(expression, timezone, tick_ms)
        if found:
            return found
    return 0


def utc_text(at_ms: int) -> str:
    """The instant as people and programs write it, such as 2026-03-29T01:00:00Z."""
    return datetime.fromtimestamp(at_ms // _SECOND_MS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
