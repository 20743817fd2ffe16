"""Two budgets: failed attempts, and attempts that lost their worker."""

from typing import Any

import pytest

from holdfast.core.lifecycle import CANCELED, DONE, FAILED, QUEUED
from holdfast.core.model import EXPONENTIAL, FIXED, QUADRATIC, BackoffRule, Template
from holdfast.core.outcomes import retry_ceiling_ms, retry_delay_ms
from holdfast.limits import BACKOFF_MS_MAX, DELAY_MS_MAX
from tests.unit.core.ledger_driver import LedgerDriver

NOW = BackoffRule(FIXED, 0)


def _fail(driver: LedgerDriver, **fields: Any) -> str:  # noqa: ANN401 - the fields of a report
    lease = driver.run_one()
    return driver.report(lease.job_id, lease.token, FAILED, **fields)


def _lose(driver: LedgerDriver) -> None:
    driver.run_one()
    driver.revoke(reason="disconnected")


@pytest.mark.parametrize("max_attempts", [1, 2, 5])
def test_job_fails_after_its_attempts(driver: LedgerDriver, max_attempts: int) -> None:
    """A job that fails every time is tried exactly `max_attempts` times."""
    driver.submit("a", template=Template("echo", max_attempts=max_attempts, backoff=NOW))
    for attempt in range(1, max_attempts + 1):
        assert driver.job("a").state == QUEUED
        _fail(driver, failure_reason=f"try {attempt}")
    job = driver.job("a")
    assert (job.state, job.attempts) == (FAILED, max_attempts)
    assert job.result is not None
    assert job.result.failure_reason == f"try {max_attempts}"


@pytest.mark.parametrize("max_losses", [0, 1, 3])
def test_job_fails_after_it_lost_too_many_workers(driver: LedgerDriver, max_losses: int) -> None:
    """A job may lose `max_losses` workers, and the next loss ends it FAILED with the reason WORKER_LOST."""
    driver.submit("poison", template=Template("echo", max_losses=max_losses))
    for _ in range(max_losses):
        _lose(driver)
        assert driver.job("poison").state == QUEUED
    _lose(driver)
    job = driver.job("poison")
    assert (job.state, job.attempts, job.losses) == (FAILED, max_losses + 1, max_losses + 1)
    assert job.result is not None
    assert job.result.failure_reason == "WORKER_LOST"


def test_budgets_are_apart(driver: LedgerDriver) -> None:
    """Losses spend no attempts, and failures spend no losses."""
    driver.submit("a", template=Template("echo", max_attempts=2, max_losses=1, backoff=NOW))
    _lose(driver)
    _fail(driver)
    assert (driver.job("a").losses, driver.job("a").failures, driver.job("a").state) == (1, 1, QUEUED)
    lease = driver.run_one()
    assert lease.attempt == 3
    assert driver.report("a", lease.token) == ""
    assert driver.job("a").state == DONE


def test_failure_that_must_not_be_retried_is_final(driver: LedgerDriver) -> None:
    """A failure marked as not retryable ends the job, however many attempts are left."""
    driver.submit("a", template=Template("echo", max_attempts=5, backoff=NOW))
    _fail(driver, is_retryable=False)
    assert driver.job("a").state == FAILED


def test_job_may_name_its_own_delay(driver: LedgerDriver) -> None:
    """A delay that the attempt requests replaces the back-off."""
    driver.submit("a", template=Template("echo", max_attempts=2, backoff=BackoffRule(FIXED, 7)))
    _fail(driver, retry_after_ms=500)
    assert driver.job("a").not_before_ms == driver.log_ms + 500


@pytest.mark.parametrize(("asked_ms", "given_ms"), [(-5, 7), (0, 7), (10**30, DELAY_MS_MAX)])
def test_delay_that_a_job_names_is_bounded(driver: LedgerDriver, asked_ms: int, given_ms: int) -> None:
    """A requested delay that is not positive counts as none, and none is longer than a year."""
    driver.submit("a", template=Template("echo", max_attempts=2, backoff=BackoffRule(FIXED, 7)))
    _fail(driver, retry_after_ms=asked_ms)
    assert driver.job("a").not_before_ms == driver.log_ms + given_ms


def test_canceled_job_is_not_tried_again(driver: LedgerDriver) -> None:
    """A job whose cancel was requested while it ran ends CANCELED instead of being retried."""
    driver.submit("a", template=Template("echo", max_attempts=5, backoff=NOW))
    lease = driver.run_one()
    driver.cancel("a")
    assert driver.report("a", lease.token, FAILED) == ""
    assert driver.job("a").state == CANCELED


def test_fixed_backoff_is_constant() -> None:
    """The fixed back-off waits its base every time."""
    assert [retry_delay_ms(BackoffRule(FIXED, 70), "a", n) for n in (1, 2, 99)] == [70, 70, 70]


def test_quadratic_backoff_grows_with_the_square() -> None:
    """The quadratic back-off waits base·n², up to its cap."""
    waits = [retry_delay_ms(BackoffRule(QUADRATIC, 10, 1_000), "a", n) for n in (1, 2, 3, 10, 11)]
    assert waits == [10, 40, 90, 1_000, 1_000]


def test_exponential_ceiling_doubles_up_to_its_cap() -> None:
    """The exponential back-off doubles its ceiling, and no number of failures overflows it."""
    backoff = BackoffRule(EXPONENTIAL, 100, BACKOFF_MS_MAX)
    assert [retry_ceiling_ms(backoff, n) for n in (1, 2, 3, 4)] == [100, 200, 400, 800]
    assert retry_ceiling_ms(backoff, 10_000) == BACKOFF_MS_MAX


def test_jitter_is_spread_and_depends_on_job_and_failure_alone() -> None:
    """Full jitter lies under the ceiling, differs between jobs and tries, and is deterministic."""
    backoff = BackoffRule(EXPONENTIAL, 1_000)
    waits = [retry_delay_ms(backoff, f"job-{n}", 3) for n in range(200)]
    assert waits == [retry_delay_ms(backoff, f"job-{n}", 3) for n in range(200)]
    assert all(0 <= wait <= 4_000 for wait in waits)
    assert min(waits) < 1_000
    assert max(waits) > 3_000
    assert retry_delay_ms(backoff, "job-1", 1) != retry_delay_ms(backoff, "job-1", 2)


def test_jitter_is_pinned() -> None:
    """The jitter is the first eight bytes of SHA-256 over "id:failures", so that every version waits the same."""
    assert retry_delay_ms(BackoffRule(EXPONENTIAL, 1_000), "job", 1) == 737


def test_no_backoff_means_at_once() -> None:
    """A base of zero means no delay, whatever the kind of back-off."""
    assert [retry_delay_ms(BackoffRule(kind, 0), "a", 9) for kind in (FIXED, EXPONENTIAL, QUADRATIC)] == [
        0,
        0,
        0,
    ]
