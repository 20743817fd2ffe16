"""Parses times that users give: ISO times, ages and durations."""

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo

from holdfast.errors import InvalidArgumentError

_AGO = re.compile(r"(\d{1,9})(ms|s|m|h|d)")
_SPAN = re.compile(r"(\d{1,9})(ms|s|m|h|d)")
_DIGITS_MAX = 10
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def moment_ms(text: str, option: str) -> int:
    """Returns the milliseconds since 1970 of `2026-11-15T12:00`, or of `10m` (ten minutes ago); 0 if empty."""
    if not text:
        return 0
    if ago := _AGO.fullmatch(text):
        return max(1, time.time_ns() // 1_000_000 - int(ago[1]) * _UNITS_MS[ago[2]])
    try:
        moment = datetime.fromisoformat(text)  # a time without a zone is local
        return max(1, round(moment.timestamp() * 1_000))
    except (ValueError, OverflowError, OSError):
        raise InvalidArgumentError(
            f"{option} must be a time such as 2026-11-15T12:00, or an age such as 90s, 10m or 7d, got {text!r}"
        ) from None


def span_ms(text: str, option: str) -> int:
    """Returns the milliseconds of `90s`, `5m` or `1h30m`; a number without a unit is in seconds."""
    parts = _SPAN.findall(text)
    if text.isdecimal() and text.isascii() and len(text) < _DIGITS_MAX:
        return int(text) * 1_000
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise InvalidArgumentError(f"{option} must be a duration such as 90s, 5m, 1h30m or 7d, got {text!r}")
    return sum(int(number) * _UNITS_MS[unit] for number, unit in parts)


def local_ms(text: str, timezone: str, option: str) -> int:
    """Returns the milliseconds since 1970 of `2026-12-24T18:00` in the zone, unless the text has an offset."""
    from zoneinfo import ZoneInfo

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgumentError(
            f"{option} must be a time such as 2026-12-24T18:00 or 2026-12-24T17:00Z, got {text!r}"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=_zone(ZoneInfo, timezone))
        if moment.astimezone(UTC).astimezone(moment.tzinfo).replace(fold=0) != moment:
            raise InvalidArgumentError(
                f"{text} does not exist in {timezone} because of a clock change; choose another time for {option}"
            )
    try:
        return round(moment.timestamp() * 1_000)
    except (OverflowError, OSError):
        raise InvalidArgumentError(f"{option} is outside the supported range of times, got {text!r}") from None


def _zone(make: Callable[[str], tzinfo], name: str) -> tzinfo:
    try:
        return make(name)
    except (ValueError, OSError, KeyError):
        raise InvalidArgumentError(
            f"--tz must be the name of a time zone, such as Europe/Paris, got {name!r}",
            reason="TIMEZONE_INVALID",
        ) from None
