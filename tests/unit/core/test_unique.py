"""Unique keys: at most one unfinished job per type and key."""

from collections.abc import Callable

import pytest

from holdfast import limits
from holdfast.core import commands
from holdfast.core.lifecycle import CANCELED, FAILED
from holdfast.core.model import Extra, NewJob, Template
from tests.unit.core.ledger_driver import ECHO, LedgerDriver


def test_submission_finds_the_job_that_has_not_ended(driver: LedgerDriver) -> None:
    """A second submit of the type and key returns the first job while that waits or runs, whatever its payload."""
    driver.submit_unique("a", "k")
    again = driver.submit_unique("b", "k", payload=b"other")
    assert (again.job_ids, again.existing, again.refusals) == (["a"], frozenset({0}), {})
    driver.run_one()
    assert driver.submit_unique("c", "k").job_ids == ["a"]
    assert driver.ledger.position == 2


def test_key_belongs_to_its_type(driver: LedgerDriver) -> None:
    """A unique key is separate per type, but not per queue or priority."""
    driver.submit_unique("a", "k")
    assert driver.submit_unique("b", "k", Template("other")).job_ids == ["b"]
    assert driver.submit_unique("c", "k", Template("echo", "q2", 9)).job_ids == ["a"]


def _done(driver: LedgerDriver) -> None:
    driver.finish("a")


def _failed(driver: LedgerDriver) -> None:
    driver.report("a", driver.run_one().token, FAILED)


def _lost(driver: LedgerDriver) -> None:
    for _ in range(2):
        driver.run_one()
        driver.revoke()


def _canceled(driver: LedgerDriver) -> None:
    driver.cancel("a")


def _canceled_together(driver: LedgerDriver) -> None:
    driver.cancel_queued("a")


def _canceled_while_running(driver: LedgerDriver) -> None:
    lease = driver.run_one()
    driver.cancel("a")
    driver.report("a", lease.token, CANCELED)


def _canceled_and_lost(driver: LedgerDriver) -> None:
    driver.run_one()
    driver.cancel("a")
    driver.revoke()


ENDS = [_done, _failed, _lost, _canceled, _canceled_together, _canceled_while_running, _canceled_and_lost]


@pytest.mark.parametrize("end", ENDS)
def test_key_is_free_once_its_job_has_ended(driver: LedgerDriver, end: Callable[[LedgerDriver], None]) -> None:
    """However a job ends, the next submit creates a new one, and evicting the old one changes nothing."""
    driver.submit_unique("a", "k", Template("echo", max_losses=1))
    end(driver)
    assert driver.submit_unique("b", "k").job_ids == ["b"]
    driver.evict(retain_jobs=0)
    assert driver.submit_unique("c", "k").job_ids == ["b"]


def test_job_that_comes_back_keeps_its_key(driver: LedgerDriver) -> None:
    """A retried job and a job that lost its worker keep their unique key."""
    driver.submit_unique("a", "k", Template("echo", max_attempts=2))
    driver.report("a", driver.run_one().token, FAILED, retry_after_ms=1)
    assert driver.submit_unique("b", "k").job_ids == ["a"]
    driver.pass_ms(1)
    driver.run_one()
    driver.revoke()
    assert driver.submit_unique("c", "k").job_ids == ["a"]


def test_twins_in_one_batch_make_one_job(driver: LedgerDriver) -> None:
    """Several jobs with one unique key in a batch become one job."""
    jobs = [NewJob(job_id, 0, job_id.encode(), 0, Extra(unique_key="k")) for job_id in "abc"]
    reply = driver.do(commands.Submit([ECHO], jobs))
    assert (reply.job_ids, reply.existing) == (["a", "a", "a"], frozenset({1, 2}))


def test_request_id_counts_before_the_unique_key(driver: LedgerDriver) -> None:
    """A repeated request returns the job that it created, even after another job has taken over the unique key."""
    extra = Extra(request_id="r", unique_key="k")
    driver.submit("a", extra=extra)
    driver.finish("a")
    driver.submit_unique("b", "k")
    assert driver.submit("c", extra=extra).job_ids == ["a"]


def test_id_counts_before_the_unique_key(driver: LedgerDriver) -> None:
    """A submit repeated with its job id returns that job, even after another job has taken over the key."""
    driver.submit_unique("a", "k")
    driver.finish("a")
    driver.submit_unique("b", "k")
    assert driver.submit_unique("a", "k").job_ids == ["a"]


def test_keys_survive_restart_and_snapshot(driver: LedgerDriver) -> None:
    """After a restart, from the log or a snapshot, only the keys of unfinished jobs are in use."""
    driver.submit_unique("a", "k")
    driver.submit_unique("x", "ended", Template("other"))
    driver.cancel("x")
    for restarted, new in ((driver.replayed, "y"), (driver.reloaded, "z")):
        driver.restart(restarted())
        assert driver.submit_unique("b", "k").job_ids == ["a"]
        assert driver.submit_unique(new, "ended", Template("other")).job_ids == [new]
        driver.cancel(new)


@pytest.mark.parametrize(
    ("key", "reason"),
    [("k" * (limits.UNIQUE_KEY_CHARS_MAX + 1), "UNIQUE_KEY_TOO_LONG"), ("a\nb", "UNIQUE_KEY_INVALID")],
)
def test_key_that_cannot_be_kept_is_refused(driver: LedgerDriver, key: str, reason: str) -> None:
    """A unique key must be short, printable text, like a request id."""
    assert driver.submit_unique("a", key).refusals[0].reason == reason
