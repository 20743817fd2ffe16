"""Schedules and ticks as JSON, with the terms of the glossary, or as text.

A tick is shown in local time and in the schedule's time zone.
"""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from holdfast.cli.text import as_span, plain, print_fields, print_table
from holdfast.ports import ScheduleSpec, ScheduleView

_SECOND_MS = 1_000
_HERE, _THERE = "NEXT (LOCAL)", "NEXT (ZONE)"
#: The length of a written time up to the minute.
_MINUTE_CHARS = 16


def schedule_json(view: ScheduleView) -> dict[str, object]:
    """Returns all data of a schedule for JSON; times are in milliseconds since 1970, 0 if there is none."""
    return {
        **spec_json(view.spec),
        "is_paused": view.is_paused,
        "created_at_ms": view.created_ms,
        "next_at_ms": view.next_ms,
        "last_tick_ms": view.last_tick_ms,
        "last_job_id": view.last_job_id,
        "fired": view.fired,
        "skipped": view.skipped,
        "missed": view.missed,
    }


def spec_json(spec: ScheduleSpec) -> dict[str, object]:
    """Returns the definition of a schedule for JSON."""
    template = spec.template
    return {
        "name": spec.name,
        "cron": spec.cron,
        "every_ms": spec.every_ms,
        "at_ms": spec.at_ms,
        "timezone": spec.timezone,
        "type": template.type,
        "queue": template.queue,
        "priority": template.priority,
        "max_attempts": template.max_attempts,
        "timeout_ms": template.timeout_ms,
        "payload": plain(spec.payload),
        "labels": dict(spec.labels),
        "catch_up": spec.catch_up,
        "catch_up_window_ms": spec.catch_up_window_ms,
        "overlap": spec.overlap,
        "jitter_ms": spec.jitter_ms,
    }


def print_schedules(views: Sequence[ScheduleView]) -> None:
    """Prints one line per schedule; a terminal gets short times, and no column that repeats the local times."""
    chars = _MINUTE_CHARS if sys.stdout.isatty() else None
    rows = [
        [
            view.spec.name,
            when(view.spec),
            view.spec.timezone,
            view.spec.template.type,
            "paused" if view.is_paused else here(view.next_ms)[:chars] or "never",
            there(view.next_ms, view.spec.timezone)[:chars] if not view.is_paused else "",
            str(view.fired),
            str(view.skipped),
            str(view.missed),
        ]
        for view in views
    ]
    columns = ["NAME", "WHEN", "ZONE", "TYPE", _HERE, _THERE, "FIRED", "SKIPPED", "MISSED"]
    if chars and all(here(view.next_ms) == there(view.next_ms, view.spec.timezone) for view in views):
        at = columns.index(_THERE)
        columns, rows = columns[:at] + columns[at + 1 :], [row[:at] + row[at + 1 :] for row in rows]
    print_table(columns, rows, "there are no schedules")


def print_schedule(view: ScheduleView) -> None:
    """Prints one line per field."""
    spec = view.spec
    print_fields(
        (
            ("name", spec.name),
            ("when", when(spec)),
            ("zone", spec.timezone),
            ("state", "paused" if view.is_paused else "active"),
            ("next", both(view.next_ms, spec.timezone) if not view.is_paused else ""),
            ("last", both(view.last_tick_ms, spec.timezone)),
            ("last job", view.last_job_id),
            ("type", spec.template.type),
            ("queue", spec.template.queue),
            ("priority", str(spec.template.priority)),
            ("payload", spec.payload.decode(errors="backslashreplace")),
            ("labels", ", ".join(f"{key}={value}" for key, value in spec.labels)),
            ("catch up", _catch_up(spec)),
            ("overlap", spec.overlap),
            ("jitter", as_span(spec.jitter_ms) if spec.jitter_ms else ""),
            ("ticks", f"{view.fired} fired, {view.skipped} skipped, {view.missed} missed"),
        )
    )


def _catch_up(spec: ScheduleSpec) -> str:
    return spec.catch_up if spec.catch_up == "none" else f"{spec.catch_up} within {as_span(spec.catch_up_window_ms)}"


def tick_json(tick_ms: int, timezone: str) -> dict[str, object]:
    """Returns one tick for JSON: as a number, and as text in UTC, local time and the schedule's zone."""
    return {
        "at_ms": tick_ms,
        "utc": _written(tick_ms, UTC, "T").replace("+00:00", "Z"),
        "local": here(tick_ms, "T"),
        "zoned": there(tick_ms, timezone, "T"),
    }


def print_ticks(ticks: Sequence[int], timezone: str) -> None:
    """Prints one line per tick; a terminal gets no column that repeats another one."""
    columns = {
        "LOCAL": [here(tick) for tick in ticks],
        timezone: [there(tick, timezone) for tick in ticks],
        "UTC": [_written(tick, UTC) for tick in ticks],
    }
    if sys.stdout.isatty():
        first = {tuple(times): name for name, times in reversed(columns.items())}
        columns = {name: times for name, times in columns.items() if first[tuple(times)] == name}
    print_table(tuple(columns), list(zip(*columns.values(), strict=True)), "the schedule never fires")


def when(spec: ScheduleSpec) -> str:
    """Returns the rule of the schedule as text."""
    if spec.cron:
        return spec.cron
    return f"every {as_span(spec.every_ms)}" if spec.every_ms else f"at {there(spec.at_ms, spec.timezone)}"


def both(at_ms: int, timezone: str) -> str:
    """Returns the local time, and the time in the zone if that differs."""
    first, second = here(at_ms), there(at_ms, timezone)
    return first if first == second else f"{first}  ({second} {timezone})"


def here(at_ms: int, separator: str = " ") -> str:
    """Returns the local time; empty for 0."""
    return _written(at_ms, None, separator)


def there(at_ms: int, timezone: str, separator: str = " ") -> str:
    """Returns the time in the zone, or in UTC if the zone is unknown on this machine; empty for 0."""
    try:
        return _written(at_ms, ZoneInfo(timezone), separator)
    except (ValueError, OSError, KeyError):
        return _written(at_ms, UTC, separator)


def _written(at_ms: int, zone: tzinfo | None, separator: str = " ") -> str:
    if not at_ms:
        return ""
    moment = datetime.fromtimestamp(at_ms // _SECOND_MS, UTC)
    try:
        return moment.astimezone(zone).isoformat(sep=separator, timespec="seconds")
    except OverflowError:  # within a day of the end of the year 9999
        return moment.isoformat(sep=separator, timespec="seconds")
