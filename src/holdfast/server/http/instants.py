"""Instants and durations in requests, converted to milliseconds."""

import re
from datetime import datetime

from holdfast.errors import InvalidArgumentError

_INSTANT_MS_MAX = 253_402_300_799_999
_DIGITS = re.compile(r"[0-9]{1,15}")


def span_ms(seconds: float) -> int:
    """Converts seconds to milliseconds; a positive duration is at least one millisecond."""
    return max(1, round(seconds * 1_000)) if seconds else 0


def instant_ms(what: str, given: str | int | None) -> int:
    """Converts ISO 8601 with its offset, or milliseconds since 1970; 0 if nothing is given."""
    if given is None or given == "":
        return 0
    if isinstance(given, int):
        return given
    if _DIGITS.fullmatch(given):
        return int(given)
    try:
        moment = datetime.fromisoformat(given)
        at_ms = round(moment.timestamp() * 1_000) if moment.tzinfo is not None else -1
    except (ValueError, OverflowError):
        at_ms = -1
    if not 0 <= at_ms <= _INSTANT_MS_MAX:
        raise InvalidArgumentError(
            f"{what} must be ISO 8601 with its offset, such as 2026-01-31T09:00:00Z,"
            f" or milliseconds since 1970, got {given[:80]!r}",
            reason="INSTANT_INVALID",
        )
    return at_ms
