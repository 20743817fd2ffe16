"""Pages over all jobs: they equal a sort of all jobs."""

import random

import pytest

from holdfast.core.ledger import Ledger
from holdfast.core.lifecycle import CANCELED, QUEUED, State
from holdfast.core.listing import Listing
from holdfast.core.model import JobRecord, Template
from tests.unit.core.ledger_driver import LedgerDriver

FILTERS: list[list[int]] = [[], [QUEUED], [State.DONE, State.CANCELED], list(State)]


def _sorted_ids(ledger: Ledger, states: list[int], *, newest_first: bool) -> list[str]:
    jobs = [job for job in ledger.state.jobs.values() if not states or job.state in states]
    sign = -1 if newest_first else 1
    return [job.id for job in sorted(jobs, key=lambda job: (sign * job.created_ms, job.id))]


def _paged_ids(ledger: Ledger, states: list[int], size: int, *, newest_first: bool) -> list[str]:
    ids: list[str] = []
    has_more = True
    while has_more:
        page, has_more = ledger.page(states, len(ids), size, newest_first=newest_first)
        assert len(page) == size or not has_more
        ids += [job.id for job in page]
    return ids


def _churn(rng: random.Random) -> LedgerDriver:
    """Returns a desk with thousands of jobs in bursts of equal time, many canceled, the oldest of these evicted."""
    driver = LedgerDriver()
    number = 0
    for _ in range(60):
        ids = [f"{rng.randrange(10**6):06}-{number + n}" for n in range(rng.randrange(1, 120))]
        number += len(ids)
        driver.submit(*ids)
        driver.pass_ms(rng.choice([0, 0, 1, 50]))
        for job_id in rng.sample(ids, len(ids) // 2):
            driver.cancel(job_id)
        if rng.random() < 0.3:
            driver.evict(retain_jobs=rng.randrange(200))
    return driver


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("states", FILTERS)
@pytest.mark.parametrize("seed", [1, 2])
def test_pages_equal_a_sort_of_everything(seed: int, states: list[int], *, newest_first: bool) -> None:
    """Under churn, consecutive pages equal the sorted jobs, for each filter and both directions."""
    driver = _churn(random.Random(seed))
    for ledger in (driver.ledger, driver.reloaded()):
        expected = _sorted_ids(ledger, states, newest_first=newest_first)
        assert _paged_ids(ledger, states, 77, newest_first=newest_first) == expected
    driver.check()


def test_jobs_of_one_millisecond_are_ordered_by_id_in_both_directions(driver: LedgerDriver) -> None:
    """The direction reverses the time, but ids ascend within a millisecond in both directions."""
    driver.submit("b", "a")
    driver.pass_ms(1)
    driver.submit("d", "c")
    assert _paged_ids(driver.ledger, [], 9, newest_first=False) == ["a", "b", "c", "d"]
    assert _paged_ids(driver.ledger, [], 9, newest_first=True) == ["c", "d", "a", "b"]


@pytest.mark.parametrize("offset", [2, 3, 10**18])
def test_offset_beyond_the_end_gives_an_empty_page(driver: LedgerDriver, offset: int) -> None:
    """A page after the last job is empty and reports that nothing follows."""
    driver.submit("a", "b")
    assert driver.ledger.page([], offset, 5, newest_first=False) == ([], False)


def test_page_that_ends_with_the_last_job_says_so(driver: LedgerDriver) -> None:
    """`has more` is exact: false when the page holds the last job, true when one is left."""
    driver.submit("a", "b", "c")
    assert not driver.ledger.page([], 0, 3, newest_first=False)[1]
    assert driver.ledger.page([], 0, 2, newest_first=False)[1]


def test_state_named_twice_counts_once(driver: LedgerDriver) -> None:
    """A filter that repeats a state equals the filter without the repetition, on every page."""
    driver.submit("a", "b", "c")
    for offset in range(5):
        once = driver.ledger.page([QUEUED], offset, 1, newest_first=False)
        assert driver.ledger.page([QUEUED, QUEUED], offset, 1, newest_first=False) == once


def test_unknown_state_matches_nothing(driver: LedgerDriver) -> None:
    """A number that is not a state matches no job, and no evicted one."""
    driver.submit("a", "b", "c")
    driver.cancel("a")
    driver.evict(retain_jobs=0)
    assert driver.ledger.page([0], 0, 5, newest_first=False) == ([], False)
    assert driver.ledger.page([99], 0, 5, newest_first=False) == ([], False)


def test_counts_follow_every_change_of_state(driver: LedgerDriver) -> None:
    """The listing counts the jobs per state after every change."""
    driver.submit("a", "b", "c")
    driver.lease(1)
    driver.cancel("c")
    listing = driver.ledger.state.listing
    assert [listing.count([state]) for state in State] == [1, 1, 0, 0, 1]
    assert listing.count([QUEUED, CANCELED]) == 2


def test_chunk_never_splits_a_millisecond() -> None:
    """Any number of jobs of the same millisecond share a chunk, and the next millisecond opens another."""
    listing = Listing()
    for number in range(2_000):
        chunk = listing.chunk_for(5)
        listing.jobs_in(chunk).append(JobRecord(f"{number}", Template("echo"), b"", number, 5, chunk=chunk))
    assert chunk == 1
    assert listing.chunk_for(6) == 2


def test_memory_of_forgotten_jobs_is_reclaimed(driver: LedgerDriver) -> None:
    """After all jobs are evicted, at most the open chunk is left, and it is empty."""
    for burst in range(5):
        driver.submit(*(f"{burst}-{n}" for n in range(1_000)))
        driver.pass_ms(1)
    for job_id in list(driver.ledger.state.jobs):
        driver.cancel(job_id)
    while driver.evict(retain_jobs=0):
        pass
    listing = driver.ledger.state.listing
    assert len(listing._chunks) == len(listing.counts_of) == 1
    assert all(not chunk.jobs for chunk in listing._chunks.values())
