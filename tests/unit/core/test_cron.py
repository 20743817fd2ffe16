"""Cron expressions: the three forms, the calendar, and clock changes of many time zones."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.core import cron

PARIS, NEW_YORK, LORD_HOWE = "Europe/Paris", "America/New_York", "Australia/Lord_Howe"
APIA, KATHMANDU, HAVANA, ST_JOHNS = "Pacific/Apia", "Asia/Kathmandu", "America/Havana", "America/St_Johns"


def ms(text: str) -> int:
    """Converts an ISO time to milliseconds since 1970."""
    return int(datetime.fromisoformat(text).timestamp() * 1_000)


def shown(tick_ms: int, timezone: str) -> str:
    """Formats a tick as month, day, local time and UTC offset."""
    return datetime.fromtimestamp(tick_ms / 1_000, cron.zone(timezone)).strftime("%m-%d %H:%M%z")[:-2]


def ticks(expression: str, timezone: str, after: str, count: int) -> list[str]:
    """Returns the next ticks, in the local time of the zone."""
    found, tick_ms = [], ms(after)
    for _ in range(count):
        tick_ms = cron.next_after(expression, timezone, tick_ms)
        found.append(shown(tick_ms, timezone))
    return found


@pytest.mark.parametrize(
    ("expression", "timezone", "after", "expected"),
    [
        # a gap of an hour: fires once right after the gap, and at the usual time the day after
        ("30 2 * * *", PARIS, "2026-03-28T03:00+01:00", ["03-29 03:00+02", "03-30 02:30+02"]),
        ("0,15,45 2 * * *", PARIS, "2026-03-28T03:00+01:00", ["03-29 03:00+02", "03-30 02:00+02"]),
        ("0 2,3 * * *", PARIS, "2026-03-28T04:00+01:00", ["03-29 03:00+02", "03-30 02:00+02"]),
        ("30 2 * * *", NEW_YORK, "2026-03-07T03:00-05:00", ["03-08 03:00-04", "03-09 02:30-04"]),
        # a star in the minute and none in the hour: the skipped ticks fire once after the gap
        ("*/20 2 * * *", PARIS, "2026-03-28T03:00+01:00", ["03-29 03:00+02", "03-30 02:00+02"]),
        # a star in the hour: fires by elapsed hours
        ("30 * * * *", PARIS, "2026-03-29T01:00+01:00", ["03-29 01:30+01", "03-29 03:30+02"]),
        ("0 */2 * * *", PARIS, "2026-03-29T00:30+01:00", ["03-29 04:00+02", "03-29 06:00+02"]),
        ("*/30 * * * *", PARIS, "2026-03-29T01:10+01:00", ["03-29 01:30+01", "03-29 03:00+02", "03-29 03:30+02"]),
        # a fold: fires once, in the first pass, unless a star covers both passes
        ("30 2 * * *", PARIS, "2026-10-24T03:00+02:00", ["10-25 02:30+02", "10-26 02:30+01"]),
        ("30 1 * * *", NEW_YORK, "2026-10-31T02:00-04:00", ["11-01 01:30-04", "11-02 01:30-05"]),
        ("30 * * * *", PARIS, "2026-10-25T02:00+02:00", ["10-25 02:30+02", "10-25 02:30+01", "10-25 03:30+01"]),
        ("*/30 2 * * *", PARIS, "2026-10-25T01:00+02:00", ["10-25 02:00+02", "10-25 02:30+02", "10-25 02:00+01"]),
        # the search starts inside the fold
        ("30 2 * * *", PARIS, "2026-10-25T02:10+01:00", ["10-26 02:30+01"]),
        ("50 2 * * *", PARIS, "2026-10-25T02:40+02:00", ["10-25 02:50+02", "10-26 02:50+01"]),
        # a change of half an hour
        ("*/10 2 * * *", LORD_HOWE, "2026-10-03T23:00+10:30", ["10-04 02:30+11", "10-04 02:40+11", "10-04 02:50+11"]),
        ("15 2 * * *", LORD_HOWE, "2026-10-03T23:00+10:30", ["10-04 02:30+11", "10-05 02:15+11"]),
        ("*/20 3 * * *", LORD_HOWE, "2026-10-03T23:00+10:30", ["10-04 03:00+11", "10-04 03:20+11", "10-04 03:40+11"]),
        ("45 1 * * *", LORD_HOWE, "2026-04-04T12:00+11:00", ["04-05 01:45+11", "04-06 01:45+10"]),
        ("45 * * * *", LORD_HOWE, "2026-04-05T01:00+11:00", ["04-05 01:45+11", "04-05 01:45+10", "04-05 02:45+10"]),
        ("*/20 2 * * *", LORD_HOWE, "2026-04-05T00:00+11:00", ["04-05 02:00+10", "04-05 02:20+10", "04-05 02:40+10"]),
        # a day that the zone skipped
        ("0 9 * * *", APIA, "2011-12-29T08:00-10:00", ["12-29 09:00-10", "12-31 00:00+14", "12-31 09:00+14"]),
        ("0 9 30 12 *", APIA, "2011-12-01T00:00-10:00", ["12-31 00:00+14", "12-30 09:00+14"]),
        ("0 * 30 12 *", APIA, "2011-12-01T00:00-10:00", ["12-30 00:00+14"]),
        ("0 0 * * *", APIA, "2011-12-28T12:00-10:00", ["12-29 00:00-10", "12-31 00:00+14", "01-01 00:00+14"]),
        # an offset of 45 minutes, and a zone without clock changes
        ("0 0 * * *", KATHMANDU, "2026-03-01T00:00Z", ["03-02 00:00+05", "03-03 00:00+05"]),
        ("30 2 * * *", "Asia/Tokyo", "2026-03-28T03:00+09:00", ["03-29 02:30+09", "03-30 02:30+09"]),
        # changes at midnight: a day that begins at 01:00, and a day whose first hour occurs twice
        ("0 0 * * *", HAVANA, "2026-03-07T12:00-05:00", ["03-08 01:00-04", "03-09 00:00-04"]),
        ("0 0,1 * * *", HAVANA, "2026-03-07T12:00-05:00", ["03-08 01:00-04", "03-09 00:00-04"]),
        ("0 0 * * *", HAVANA, "2026-10-31T12:00-04:00", ["11-01 00:00-04", "11-02 00:00-05"]),
        # a change one minute past midnight, back into the day before
        ("*/30 23 * * *", ST_JOHNS, "2010-11-06T23:10-02:30", ["11-06 23:30-02", "11-06 23:30-03", "11-07 23:00-03"]),
        ("0 0 * * *", ST_JOHNS, "2010-11-06T12:00-02:30", ["11-07 00:00-02", "11-08 00:00-03"]),
    ],
)
def test_clock_changes(expression: str, timezone: str, after: str, expected: list[str]) -> None:
    """A skipped tick fires after the gap, a repeated tick fires once, and a tick with a star follows elapsed time."""
    assert ticks(expression, timezone, after, len(expected)) == expected


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("0 0 29 2 *", "2026-01-01", ["2028-02-29", "2032-02-29"]),
        ("0 0 29 2 *", "2096-03-01", ["2104-02-29", "2108-02-29"]),
        ("0 0 31 * *", "2026-01-01", ["2026-01-31", "2026-03-31", "2026-05-31", "2026-07-31", "2026-08-31"]),
        ("0 0 30 2,3 *", "2026-01-01", ["2026-03-30", "2027-03-30"]),
        ("0 0 L * *", "2027-12-31", ["2028-01-31", "2028-02-29", "2028-03-31"]),
        ("0 0 * * mon", "2026-01-01", ["2026-01-05", "2026-01-12"]),
        ("0 0 * * 7", "2026-01-01", ["2026-01-04", "2026-01-11"]),
        ("0 0 * * fri-sat,tue", "2026-01-01", ["2026-01-02", "2026-01-03", "2026-01-06"]),
        ("0 0 13 * fri", "2026-01-01", ["2026-01-02", "2026-01-09", "2026-01-13", "2026-01-16"]),
        ("0 0 1 JAN,jul *", "2026-01-01", ["2026-07-01", "2027-01-01"]),
        ("0 0 1-7/3 1 *", "2026-01-01", ["2026-01-04", "2026-01-07", "2027-01-01"]),
        ("0 0 * 2 mon#5", "2026-01-01", ["2044-02-29"]),
        ("@weekly", "2026-01-01", ["2026-01-04", "2026-01-11"]),
        ("@monthly", "2026-01-01", ["2026-02-01", "2026-03-01"]),
        ("@yearly", "2026-01-01", ["2027-01-01", "2028-01-01"]),
        ("@annually", "2026-01-01", ["2027-01-01"]),
        (" @Daily ", "2026-01-01", ["2026-01-02", "2026-01-03"]),
        ("@midnight", "2026-01-01", ["2026-01-02"]),
    ],
)
def test_days_of_the_calendar(expression: str, after: str, expected: list[str]) -> None:
    """Cron accepts leap days, long months, names of days and months, lists, steps and the usual short names."""
    found, tick_ms = [], ms(f"{after}T00:00Z")
    for _ in expected:
        tick_ms = cron.next_after(expression, "UTC", tick_ms)
        found.append(cron.utc_text(tick_ms))
    assert found == [f"{day}T00:00:00Z" for day in expected]


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("*/5 *", "*/5 * * * *"),
        ("0 9", "0 9 * * *"),
        ("0 */2", "0 */2 * * *"),
        ("* 9", "* 9 * * *"),
        (" 5,10-20/5\t1-3 ", "5,10-20/5 1-3 * * *"),
        ("@hourly", "0 * * * *"),
    ],
)
def test_short_forms_stand_for_five_fields(short: str, long: str) -> None:
    """An expression of two fields stands for minute and hour of every day."""
    assert cron.canonical(short) == long
    start = ms("2026-05-05T08:59Z")
    assert cron.next_after(short, "UTC", start) == cron.next_after(long, "UTC", start)


def test_two_fields_fire_when_they_say() -> None:
    """The expression `* 9` fires sixty times a day, and `0 */2` fires twelve times."""
    assert cron.count_between("* 9", "UTC", ms("2026-05-05T00:00Z"), ms("2026-05-06T00:00Z")) == 60
    assert cron.count_between("0 */2", "UTC", ms("2026-05-05T00:00Z"), ms("2026-05-06T00:00Z")) == 12


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "*",
        "* * *",
        "* * * * * *",
        "60 *",
        "* 24",
        "0 0 0 * *",
        "0 0 32 * *",
        "0 0 * 13 *",
        "0 0 * * 8",
        "0 0 * * fri-mon",
        "*/0 *",
        "5-1 *",
        "1,, *",
        "-1 *",
        "0x1 *",
        "\u0661 *",
        "1\u00b2 *",
        "@reboot",
        "@",
        "0 0 31 2 *",
        "9" * 5_000 + " *",
        "1," * 100_000 + "1 *",
    ],
)
def test_invalid_expression_is_refused(expression: str) -> None:
    """Cron quickly refuses an invalid expression, with a message."""
    with pytest.raises(ValueError, match=r"^(five fields|a cron expression|a text of at most)"):
        cron.canonical(expression)


@pytest.mark.parametrize(
    "name", ["", "Paris", "europe/paris", "../etc/passwd", "/etc/localtime", "UTC\0", "x" * 10_000]
)
def test_zone_that_is_in_no_database_is_refused(name: str) -> None:
    """Cron refuses a name that is not in the time zone database, and opens no file for it."""
    with pytest.raises(ValueError, match="the name of a time zone"):
        cron.zone(name)


@pytest.mark.parametrize("after_ms", [-(10**18), -1, 0, 10**13, 253_402_300_799_000, 10**18])
@pytest.mark.parametrize("timezone", ["UTC", "Pacific/Kiritimati", "America/Adak"])
def test_instants_beyond_the_calendar_have_no_ticks(after_ms: int, timezone: str) -> None:
    """An instant beyond the calendar, at either end, causes no overflow and no wrong tick."""
    tick_ms = cron.next_after("*/15 * * * *", timezone, after_ms)
    assert tick_ms == 0 or tick_ms > after_ms
    assert cron.last_until("*/15 * * * *", timezone, after_ms) <= max(0, after_ms)


def test_week_of_every_minute_is_counted_exactly() -> None:
    """A count of every-minute ticks over a week is exact, also over the change to summer time, which skips an hour."""
    start = datetime(2026, 3, 25, tzinfo=UTC)
    end = start + timedelta(days=7)
    count = cron.count_between("* * * * *", PARIS, int(start.timestamp() * 1_000), int(end.timestamp() * 1_000))
    assert count == 7 * 24 * 60
    assert cron.count_between("30 2 * * *", PARIS, ms("2026-03-25T00:00Z"), ms("2026-04-01T00:00Z")) == 7
