"""Searches: the listing in slices, each of which continues where the last one ended."""

import random

import pytest

from holdfast import limits
from holdfast.core.ledger import Ledger
from holdfast.core.lifecycle import QUEUED, State
from holdfast.core.listing import Place
from holdfast.core.model import JobRecord
from tests.unit.core.ledger_driver import LedgerDriver
from tests.unit.core.test_listing import FILTERS, _churn, _sorted_ids


def _all(_: JobRecord) -> bool:
    return True


def _scanned(ledger: Ledger, states: list[int], size: int, budget: int, *, newest_first: bool) -> list[str]:
    ids: list[str] = []
    place: Place | None = None
    while True:
        jobs, place = ledger.scan(states, place, size, budget, newest_first=newest_first, wants=_all)
        assert len(jobs) <= size
        ids += [job.id for job in jobs]
        if place is None:
            return ids


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("states", FILTERS)
@pytest.mark.parametrize(("size", "budget"), [(77, limits.SCAN_JOBS_MAX), (1_000, 50), (3, 1)])
def test_slices_equal_a_sort_of_everything(states: list[int], size: int, budget: int, *, newest_first: bool) -> None:
    """Under churn, consecutive slices equal the sorted jobs, however small the budget of a slice."""
    ledger = _churn(random.Random(3)).ledger
    expected = _sorted_ids(ledger, states, newest_first=newest_first)
    assert _scanned(ledger, states, size, budget, newest_first=newest_first) == expected


@pytest.mark.parametrize("newest_first", [False, True])
def test_search_applies_its_filter_and_time_range(*, newest_first: bool) -> None:
    """A search applies its filter and its time range, which includes the start and excludes the end."""
    ledger = _churn(random.Random(4)).ledger
    times = sorted({job.created_ms for job in ledger.state.jobs.values()})
    low, high = times[len(times) // 4], times[3 * len(times) // 4]
    jobs, place = ledger.scan(
        [],
        None,
        10**6,
        10**6,
        newest_first=newest_first,
        wants=lambda job: job.number % 3 == 0,
        created_from_ms=low,
        created_before_ms=high,
    )
    expected = [
        job_id
        for job_id in _sorted_ids(ledger, [], newest_first=newest_first)
        if low <= ledger.state.jobs[job_id].created_ms < high and ledger.state.jobs[job_id].number % 3 == 0
    ]
    assert ([job.id for job in jobs], place) == (expected, None)
    assert expected


def test_no_more_is_looked_at_than_the_budget(driver: LedgerDriver) -> None:
    """A search without matches stops after its budget and returns the position to continue from."""
    driver.submit(*[f"{number:03}" for number in range(100)])
    looked: list[str] = []

    def wants(job: JobRecord) -> bool:
        looked.append(job.id)
        return False

    jobs, place = driver.ledger.scan([], None, 10, 7, newest_first=False, wants=wants)
    assert (jobs, place, len(looked)) == ([], (driver.log_ms, "006"), 7)


def test_chunks_without_a_match_are_not_looked_into(driver: LedgerDriver) -> None:
    """Chunks that a search skips by their counts cost none of its budget."""
    for number in range(5):
        driver.submit(*[f"{number}-{job:03}" for job in range(1_000)])
        driver.cancel_queued(*[f"{number}-{job:03}" for job in range(1_000)])
        driver.pass_ms(1)
    driver.submit("last")
    jobs, place = driver.ledger.scan([QUEUED], None, 1, 1, newest_first=False, wants=_all)
    assert ([job.id for job in jobs], place) == (["last"], (driver.log_ms, "last"))


@pytest.mark.parametrize("newest_first", [False, True])
def test_search_is_stable_while_jobs_come_move_and_go(*, newest_first: bool) -> None:
    """A search finds every job that exists from its first to its last slice once, and no job twice."""
    rng = random.Random(5)
    driver = LedgerDriver()
    number = 0
    for _ in range(40):
        driver.submit(*[f"{rng.randrange(10**6):06}-{number + n}" for n in range(50)])
        number += 50
        driver.pass_ms(1)
    stays = set(driver.ledger.state.jobs)
    found: list[str] = []
    place: Place | None = None
    while True:
        jobs, place = driver.ledger.scan([], place, 30, 90, newest_first=newest_first, wants=_all)
        found += [job.id for job in jobs]
        if place is None:
            break
        driver.pass_ms(1)
        if number < 3_000:
            driver.submit(*[f"{rng.randrange(10**6):06}-{number + n}" for n in range(20)])
            number += 20
        driver.cancel_queued(*rng.sample(sorted(driver.ledger.state.jobs), 15))
        driver.evict(retain_jobs=10)
        stays &= set(driver.ledger.state.jobs)
    assert len(found) == len(set(found))
    assert stays <= set(found)
    assert State.CANCELED in {job.state for job in driver.ledger.state.jobs.values()}
