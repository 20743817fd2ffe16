"""Cron expressions: read or refused with a sentence, and what is read fires when a walk over the minutes says so.

The walk goes the other way than the product does: from each minute of UTC to what the clocks on the wall show, with
fields that are read here. Expressions come from a grammar that says what they mean; any other text must be read or
refused, and give ticks that agree with each other.
"""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from holdfast.core import cron
from tests.fuzz.source import Source

EXAMPLES = 200
IS_GUIDED = False

_MINUTE_S, _DAY_S, _MS = 60, 86_400, 1_000
_ALPHABET = "0123456789*/,-#LW@ abcdefjmnostuwy?\t\0é٣"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
#: Zones with instants around which their clocks change, or nothing happens.
_PLACES = (
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
)
#: So far a walk goes at most.
_WALK_S = 2 * _DAY_S
_LATEST_MS = 253_402_300_800_000


class _Field(NamedTuple):
    text: str
    values: frozenset[int]

    @property
    def is_star(self) -> bool:
        return self.text.startswith("*")


def seeds() -> list[bytes]:
    """Instants around each change of clocks, with expressions of several kinds; and some texts."""
    tails = (b"\0" * 12, bytes([1, 5, 0, 0, 0]), bytes([2, 0, 30, 2, 0, 2, 0, 0]), bytes([0, 3, 0, 2, 0, 4, 0]))
    structured = [bytes([0, place, 8, 0]) + tail for place in range(len(_PLACES)) for tail in tails]
    texts = ("* * * * *", "@daily", "5 4", "0 0 29 2 *", "0 0 L * 5#2", "*/7 1-5 1,15 jan-mar mon-fri", "61 * * * *")
    return structured + [b"\1\0\0\0" + text.encode() for text in texts]


def fuzz(data: bytes) -> None:
    """Reads an expression, and asks when it fires."""
    source = Source(data)
    is_text = source.below(2) == 1
    name, change = source.pick(_PLACES)
    shift_s = (source.below(256) - 128) * 15 * _MINUTE_S + source.below(256) % 61
    at_s = int(change.timestamp()) + shift_s
    if is_text:
        _check_text(source.rest(), name, at_s)
        return
    fields = [_field(source, *_RANGES[number], number) for number in range(5)]
    text = " ".join(field.text for field in fields)
    try:
        cron.canonical(text)
    except ValueError as error:
        # Only a day that no month has is no expression of this grammar.
        assert "day-of-month" in str(error), error
        return
    _check_walk(text, fields, name, at_s)


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
    """The next tick is later, and looking back from it agrees with that."""
    next_ms = cron.next_after(text, zone, at_s * _MS)
    if not next_ms:
        return 0
    assert at_s * _MS < next_ms < _LATEST_MS
    assert cron.last_until(text, zone, next_ms) == next_ms
    assert cron.last_until(text, zone, next_ms - 1) <= at_s * _MS
    assert cron.next_after(text, zone, next_ms - 1) == next_ms
    assert cron.utc_text(next_ms).endswith("Z")
    return next_ms


def _check_walk(text: str, fields: list[_Field], name: str, at_s: int) -> None:
    next_ms = _check_views(text, name, at_s)
    next_s = next_ms // _MS if next_ms else at_s + _WALK_S + 1
    zone = ZoneInfo(name)
    for start_s in {at_s, max(at_s, next_s - _WALK_S // 2)}:
        end_s = min(next_s, start_s + _WALK_S)
        walked = _first(fields, zone, start_s, end_s)
        expected = next_s if next_ms and end_s == next_s else 0
        assert walked == expected, f"{text!r} in {name} after {start_s}: the walk says {walked}, not {expected}"


def _first(fields: list[_Field], zone: ZoneInfo, after_s: int, until_s: int) -> int:
    """The first minute of UTC in which it fires, 0 if there is none."""
    minute_s = after_s // _MINUTE_S * _MINUTE_S + _MINUTE_S
    before = datetime.fromtimestamp(minute_s - _MINUTE_S, zone)
    is_wall = not (fields[0].is_star or fields[1].is_star)
    while minute_s <= until_s:
        now = datetime.fromtimestamp(minute_s, zone)
        if _matches(fields, now) and not (is_wall and now.fold):
            return minute_s
        skipped = now.replace(tzinfo=None) - before.replace(tzinfo=None) - timedelta(minutes=1)
        if skipped > timedelta(0) and not fields[1].is_star:
            lost = (
                before.replace(tzinfo=None) + timedelta(minutes=1 + n) for n in range(skipped // timedelta(minutes=1))
            )
            if any(_matches(fields, local) for local in lost):
                return minute_s
        before = now
        minute_s += _MINUTE_S
    return 0


def _matches(fields: list[_Field], local: datetime) -> bool:
    minute, hour, day, month, weekday = fields
    if local.minute not in minute.values or local.hour not in hour.values or local.month not in month.values:
        return False
    is_day, is_weekday = local.day in day.values, local.isoweekday() % 7 in weekday.values
    # Where both are said, either will do.
    return is_day and is_weekday if day.is_star or weekday.is_star else is_day or is_weekday


def _field(source: Source, low: int, high: int, number: int) -> _Field:
    kind = source.below(6) if number < 2 or source.below(3) == 2 else 0
    match kind:
        case 0:
            field = _Field("*", frozenset(range(low, high + 1)))
        case 1:
            step = 1 + source.below(high)
            field = _Field(f"*/{step}", frozenset(range(low, high + 1, step)))
        case _:
            parts = [_part(source, low, high, number) for _ in range(1 + source.below(3))]
            values = frozenset().union(*(part.values for part in parts))
            field = _Field(",".join(part.text for part in parts), values)
    return _Field(field.text, frozenset(value % 7 for value in field.values)) if number == 4 else field


def _part(source: Source, low: int, high: int, number: int) -> _Field:
    first, last = sorted((low + source.below(high - low + 1), low + source.below(high - low + 1)))
    match source.below(3):
        case 0:
            return _Field(_named(source, first, number), frozenset({first}))
        case 1:
            return _Field(f"{_named(source, first, number)}-{last}", frozenset(range(first, last + 1)))
        case _:
            step = 1 + source.below(7)
            return _Field(f"{first}-{last}/{step}", frozenset(range(first, last + 1, step)))


def _named(source: Source, value: int, number: int) -> str:
    names = {3: ("", *_MONTHS), 4: _DAYS}.get(number, ())
    return names[value] if value < len(names) and source.is_one_in(3) else str(value)
