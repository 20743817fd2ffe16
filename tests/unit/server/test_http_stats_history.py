"""The statistics of the last minutes: ordered, bounded, and empty without totals."""

import msgspec

from holdfast.server.http.stats_history import EVERY_MS, StatsHistory
from holdfast.server.http.system import StatsResource, Totals

TOTALS = Totals(
    submitted=7,
    finished={"done": 5, "failed": 1, "canceled": 0},
    wait_ms_bounds=[1, 10],
    wait_ms_counts=[1, 4, 2],
    run_ms_bounds=[5],
    run_ms_counts=[6, 0],
    leases_expired=2,
    reports_fenced=0,
)
STATS = StatsResource(
    position=1,
    now_ms=1_000,
    states={"QUEUED": 1, "RUNNING": 3},
    bytes_held=0,
    epoch=1,
    cluster_id="",
    workers=0,
    slots=0,
    leases=0,
    version="",
    backend="ledger",
    started_at_ms=500,
    totals=TOTALS,
)


async def never() -> StatsResource:
    """Fails if it is called."""
    raise AssertionError


def test_samples_are_kept_in_order_and_never_too_many() -> None:
    """Samples are in order and cover less than a quarter of an hour."""
    memory = StatsHistory(never)
    for number in range(500):
        memory.keep(msgspec.structs.replace(STATS, now_ms=1_000 + number * EVERY_MS))
    recent = memory.recent()
    assert (recent.started_at_ms, recent.wait_ms_bounds, recent.run_ms_bounds) == (500, [1, 10], [5])
    times = [sample.at_ms for sample in recent.samples]
    assert times == sorted(times)
    assert times[-1] == 1_000 + 499 * EVERY_MS
    assert times[-1] - times[0] < 15 * 60_000
    assert (recent.samples[0].queued, recent.samples[0].done, recent.samples[0].wait_ms_counts) == (1, 5, [1, 4, 2])


def test_backend_without_totals_has_no_samples() -> None:
    """A backend without totals has no samples, and a query is no error."""
    memory = StatsHistory(never)
    memory.keep(msgspec.structs.replace(STATS, totals=None))
    assert memory.recent().samples == []
