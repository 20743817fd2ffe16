"""Cron expressions: refused with a message, or parsed, with the same ticks as a walk over the minutes.

Expressions come from a grammar that the walk supports. Any other text must be parsed or refused, and its next and last
ticks must agree.
"""

from zoneinfo import ZoneInfo

from holdfast.core import cron
from tests.fuzz.cron_walk import MINUTE_S, NAMES, PLACES, RANGES, fields_of, ticks
from tests.fuzz.source import Source

EXAMPLES = 200
IS_GUIDED = False

_DAY_S, _MS = 86_400, 1_000
_ALPHABET = "0123456789*/,-#LW@ abcdefjmnostuwy?\t\0é٣"
#: The longest walk.
_WALK_S = 2 * _DAY_S
_LATEST_MS = 253_402_300_800_000


def seeds() -> list[bytes]:
    """Instants around each clock change, with expressions of several kinds; and some texts."""
    tails = (b"\0" * 12, bytes([1, 5, 0, 0, 0]), bytes([2, 0, 30, 2, 0, 2, 0, 0]), bytes([0, 3, 0, 2, 0, 4, 0]))
    structured = [bytes([0, place, 8, 0]) + tail for place in range(len(PLACES)) for tail in tails]
    texts = ("* * * * *", "@daily", "5 4", "0 0 29 2 *", "0 0 L * 5#2", "*/7 1-5 1,15 jan-mar mon-fri", "61 * * * *")
    return structured + [b"\1\0\0\0" + text.encode() for text in texts]


def fuzz(data: bytes) -> None:
    """Parses an expression and computes its ticks."""
    source = Source(data)
    is_text = source.below(2) == 1
    name, change = source.pick(PLACES)
    shift_s = (source.below(256) - 128) * 15 * MINUTE_S + source.below(256) % 61
    at_s = int(change.timestamp()) + shift_s
    if is_text:
        _check_text(source.rest(), name, at_s)
        return
    text = " ".join(_field(source, number) for number in range(len(RANGES)))
    try:
        cron.canonical(text)
    except ValueError as error:
        # In this grammar only a day that no month has is invalid.
        assert "day-of-month" in str(error), error
        return
    _check_walk(text, name, at_s)


def _check_text(data: bytes, zone: str, at_s: int) -> None:
    letters = [_ALPHABET[byte % len(_ALPHABET)] if byte >= 128 else chr(byte) for byte in data]
    text = "".join(letters)
    try:
        five = cron.canonical(text)
    except ValueError as error:
        assert str(error)
        assert not cron.is_readable(text, zone)
        return
    assert cron.canonical(five) == five
    _check_views(text, zone, at_s)


def _check_views(text: str, zone: str, at_s: int) -> int:
    """Checks that the next tick is later and agrees with the last tick before it; returns it."""
    next_ms = cron.next_after(text, zone, at_s * _MS)
    if not next_ms:
        return 0
    assert at_s * _MS < next_ms < _LATEST_MS
    assert cron.last_until(text, zone, next_ms) == next_ms
    assert cron.last_until(text, zone, next_ms - 1) <= at_s * _MS
    assert cron.next_after(text, zone, next_ms - 1) == next_ms
    assert cron.utc_text(next_ms).endswith("Z")
    return next_ms


def _check_walk(text: str, name: str, at_s: int) -> None:
    next_ms = _check_views(text, name, at_s)
    next_s = next_ms // _MS if next_ms else at_s + _WALK_S + 1
    fields, zone = fields_of(text), ZoneInfo(name)
    for start_s in {at_s, max(at_s, next_s - _WALK_S // 2)}:
        end_s = min(next_s, start_s + _WALK_S)
        walked = next(ticks(fields, zone, start_s, end_s), 0)
        expected = next_s if next_ms and end_s == next_s else 0
        assert walked == expected, f"{text!r} in {name} after {start_s}: the walk says {walked}, not {expected}"


def _field(source: Source, number: int) -> str:
    high = RANGES[number][1]
    kind = source.below(6) if number < 2 or source.below(3) == 2 else 0
    match kind:
        case 0:
            return "*"
        case 1:
            return f"*/{1 + source.below(high)}"
        case _:
            return ",".join(_part(source, number) for _ in range(1 + source.below(3)))


def _part(source: Source, number: int) -> str:
    low, high = RANGES[number]
    first, last = sorted((low + source.below(high - low + 1), low + source.below(high - low + 1)))
    match source.below(3):
        case 0:
            return _named(source, first, number)
        case 1:
            return f"{_named(source, first, number)}-{last}"
        case _:
            return f"{first}-{last}/{1 + source.below(7)}"


def _named(source: Source, value: int, number: int) -> str:
    names = NAMES[number]
    return names[value] if value < len(names) and source.is_one_in(3) else str(value)
