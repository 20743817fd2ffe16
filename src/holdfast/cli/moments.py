"""Times as people give them: a moment in ISO format, or how long ago."""

import re
import time
from datetime import datetime

from holdfast.errors import InvalidArgumentError

_AGO = re.compile(r"(\d{1,9})(ms|s|m|h|d)")
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def moment_ms(text: str, option: str) -> int:
    """Milliseconds since 1970 of `2026-11-15T12:00`, or of `10m`, which is ten minutes ago; 0 for nothing."""
    if not text:
        return 0
    if ago := _AGO.fullmatch(text):
        return max(1, time.time_ns() // 1_000_000 - int(ago[1]) * _UNITS_MS[ago[2]])
    try:
        moment = datetime.fromisoformat(text)  # without a zone, the local time is meant
        return max(1, round(moment.timestamp() * 1_000))
    except (ValueError, OverflowError, OSError):
        raise InvalidArgumentError(
            f"expected {option} to be a time such as 2026-11-15T12:00, or an age such as 90s, 10m or 7d, got {text!r}"
        ) from None
