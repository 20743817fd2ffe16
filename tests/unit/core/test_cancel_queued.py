"""Canceling many jobs at once: waiting jobs end in one event, other jobs do not change."""

from holdfast import limits
from holdfast.core.lifecycle import CANCELED, DONE, RUNNING
from tests.unit.core.ledger_driver import LedgerDriver


def test_bulk_cancel_skips_jobs_that_do_not_wait(driver: LedgerDriver) -> None:
    """A bulk cancel skips running, finished and unknown jobs, and one event names each waiting job once."""
    driver.submit("a", "b", "c")
    driver.submit("d", not_before_ms=driver.log_ms + 50)
    driver.finish("a")
    driver.run_one()
    before = driver.ledger.position
    assert driver.cancel_queued("a", "b", "c", "d", "c", "nobody", reason="purged") == ["c", "d"]
    assert driver.ledger.position == before + 1
    assert [driver.job(job_id).state for job_id in "abcd"] == [DONE, RUNNING, CANCELED, CANCELED]
    result = driver.job("c").result
    assert result is not None
    assert result.summary == "purged"
    assert driver.leased_ids(9) == []


def test_nothing_that_waits_is_no_event(driver: LedgerDriver) -> None:
    """A second cancel of the same jobs writes no event."""
    driver.submit("a")
    driver.cancel_queued("a")
    assert driver.cancel_queued("a") == []
    assert driver.cancel_queued() == []
    assert driver.ledger.position == 2


def test_too_many_at_once_and_bad_reasons_are_refused(driver: LedgerDriver) -> None:
    """The ledger refuses a bulk cancel of more jobs than a batch may have, and one with an invalid reason."""
    ids = [f"job-{number}" for number in range(limits.BATCH_JOBS_MAX + 1)]
    assert driver.cancel_queued(*ids).reason == "BATCH_SIZE_INVALID"
    assert driver.cancel_queued("a", reason="\ud800").reason == "REASON_INVALID"
