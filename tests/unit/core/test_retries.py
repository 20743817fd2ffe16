"""Two budgets: failed attempts, and attempts that lost their worker."""

from typing import Any

import pytest

from holdfast.core.lifecycle import CANCELED, DONE, FAILED, QUEUED
from holdfast.core.model import EXPONENTIAL, FIXED, QUADRATIC, BackoffRule, Template
from holdfast.core.outcomes import retry_ceiling_ms, retry_delay_ms
from holdfast.limits import BACKOFF_MS_MAX, DELAY_MS_MAX
from tests.unit.core.desk import Desk

NOW = BackoffRule(FIXED, 0)


def _fail(desk: Desk, **fields: Any) -> str:  # noqa: ANN401 - the fields of a report
    lease = desk.run_one()
    return desk.report(lease.job_id, lease.token, FAILED, **fields)


def _lose(desk: Desk) -> None:
    desk.run_one()
    desk.revoke(reason="disconnected")


@pytest.mark.parametrize("max_attempts", [1, 2, 5])
def test_job_fails_after_its_attempts(desk: Desk, max_attempts: int) -> None:
    """A job that fails every time is tried exactly `max_attempts` times."""
    desk.submit("a", template=Template("echo", max_attempts=max_attempts, backoff=NOW))
    for attempt in range(1, max_attempts + 1):
        assert desk.job("a").state == QUEUED
        _fail(desk, failure_reason=f"try {attempt}")
    job = desk.job("a")
    assert (job.state, job.attempts) == (FAILED, max_attempts)
    assert job.result is not None
    assert job.result.failure_reason == f"try {max_attempts}"


@pytest.mark.parametrize("max_losses", [0, 1, 3])
def test_job_fails_after_it_lost_too_many_workers(desk: Desk, max_losses: int) -> None:
    """A job may lose `max_losses` workers, and the next loss ends it FAILED with the reason WORKER_LOST."""
    desk.submit("poison", template=Template("echo", max_losses=max_losses))
    for _ in range(max_losses):
        _lose(desk)
        assert desk.job("poison").state == QUEUED
    _lose(desk)
    job = desk.job("poison")
    assert (job.state, job.attempts, job.losses) == (FAILED, max_losses + 1, max_losses + 1)
    assert job.result is not None
    assert job.result.failure_reason == "WORKER_LOST"


def test_budgets_are_apart(desk: Desk) -> None:
    """Losses spend no attempts, and failures spend no losses."""
    desk.submit("a", template=Template("echo", max_attempts=2, max_losses=1, backoff=NOW))
    _lose(desk)
    _fail(desk)
    assert (desk.job("a").losses, desk.job("a").failures, desk.job("a").state) == (1, 1, QUEUED)
    lease = desk.run_one()
    assert lease.attempt == 3
    assert desk.report("a", lease.token) == ""
    assert desk.job("a").state == DONE


def test_failure_that_must_not_be_retried_is_final(desk: Desk) -> None:
    """A failure marked as not retryable ends the job, however many attempts are left."""
    desk.submit("a", template=Template("echo", max_attempts=5, backoff=NOW))
    _fail(desk, is_retryable=False)
    assert desk.job("a").state == FAILED


def test_job_may_name_its_own_delay(desk: Desk) -> None:
    """A delay that the attempt requests replaces the back-off."""
    desk.submit("a", template=Template("echo", max_attempts=2, backoff=BackoffRule(FIXED, 7)))
    _fail(desk, retry_after_ms=500)
    assert desk.job("a").not_before_ms == desk.log_ms + 500


@pytest.mark.parametrize(("asked_ms", "given_ms"), [(-5, 7), (0, 7), (10**30, DELAY_MS_MAX)])
def test_delay_that_a_job_names_is_bounded(desk: Desk, asked_ms: int, given_ms: int) -> None:
    """A requested delay that is not positive counts as none, and none is longer than a year."""
    desk.submit("a", template=Template("echo", max_attempts=2, backoff=BackoffRule(FIXED, 7)))
    _fail(desk, retry_after_ms=asked_ms)
    assert desk.job("a").not_before_ms == desk.log_ms + given_ms


def test_canceled_job_is_not_tried_again(desk: Desk) -> None:
    """A job whose cancel was requested while it ran ends CANCELED instead of being retried."""
    desk.submit("a", template=Template("echo", max_attempts=5, backoff=NOW))
    lease = desk.run_one()
    desk.cancel("a")
    assert desk.report("a", lease.token, FAILED) == ""
    assert desk.job("a").state == CANCELED


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
