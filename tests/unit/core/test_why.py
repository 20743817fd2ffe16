"""The explanation of why a job is not running."""

import pytest

from holdfast.core.explanation import why
from holdfast.core.model import FIXED, BackoffRule, Now, QueueMode, Template
from holdfast.core.workers import WorkerInfo
from tests.unit.core.ledger_driver import LedgerDriver

IDLE = WorkerInfo("w1", routes=frozenset({"echo"}))


def ask(driver: LedgerDriver, job_id: str, *workers: WorkerInfo) -> tuple[str, str]:
    """Returns the explanation at the desk's own time."""
    return why(driver.ledger, driver.job(job_id), workers, Now(driver.log_ms, driver.served_ms))


def test_job_without_any_worker_says_so(driver: LedgerDriver) -> None:
    """If no worker is connected, the explanation names the command that starts one."""
    driver.submit("a")
    reason, sentence = ask(driver, "a")
    assert (reason, "holdfast worker" in sentence) == ("NO_WORKER", True)


@pytest.mark.parametrize(
    ("worker", "reason", "words"),
    [
        (WorkerInfo("w1", routes=frozenset({"sim"})), "TYPE_UNKNOWN", "knows the type 'echo'"),
        (WorkerInfo("w1", frozenset({"echo"}), frozenset({"high"})), "QUEUE_UNSERVED", "serves the queue 'default'"),
        (WorkerInfo("w1", frozenset({"echo"}), is_draining=True), "WORKERS_DRAINING", "draining"),
    ],
)
def test_explanation_names_the_first_condition_that_no_worker_meets(
    driver: LedgerDriver, worker: WorkerInfo, reason: str, words: str
) -> None:
    """The explanation names the first condition that no worker meets: type, queue or readiness."""
    driver.submit("a")
    found, sentence = ask(driver, "a", worker)
    assert (found, words in sentence) == (reason, True)


def test_delayed_job_says_how_long(driver: LedgerDriver) -> None:
    """The explanation of a delayed job names the remaining time."""
    driver.submit("a", not_before_ms=driver.log_ms + 2_500)
    assert ask(driver, "a", IDLE) == ("DELAYED", "it is not due for another 2.5 s (as submitted)")


def test_job_that_is_due_within_a_moment_is_due_now(driver: LedgerDriver) -> None:
    """A delay that rounds to nothing is not shown as 0.0 seconds."""
    driver.submit("a", not_before_ms=driver.log_ms + 40)
    assert ask(driver, "a", IDLE) == ("DELAYED", "it is due now (as submitted)")


def test_job_between_attempts_says_that_it_failed(driver: LedgerDriver) -> None:
    """The explanation distinguishes the wait for a retry from a delay of the submit."""
    driver.submit("a", template=Template("echo", max_attempts=3, backoff=BackoffRule(FIXED, 4_000)))
    (lease,) = driver.lease()
    driver.report("a", lease.token, state=4)
    reason, sentence = ask(driver, "a", IDLE)
    assert (reason, "after 1 failed attempt" in sentence) == ("DELAYED", True)


def test_job_of_a_paused_queue_says_so(driver: LedgerDriver) -> None:
    """A pause is named before other conditions, with its reason and its time, but draining blocks no job."""
    driver.submit("a")
    driver.set_mode("default", QueueMode.PAUSED, "on call")
    driver.pass_ms(2_500)
    assert ask(driver, "a") == ("QUEUE_PAUSED", "its queue 'default' was paused 2.5 s ago (on call)")
    driver.set_mode("default", QueueMode.DRAINING)
    assert ask(driver, "a", IDLE)[0] == "NEXT"


def test_waiting_job_counts_those_before_it(driver: LedgerDriver) -> None:
    """The first job of its lane is next, and for others the explanation counts the jobs before them."""
    driver.submit("a", "b", "c")
    assert ask(driver, "a", IDLE)[0] == "NEXT"
    assert ask(driver, "c", IDLE) == (
        "BEHIND_OTHERS",
        "it waits behind 2 other jobs of its queue, type and priority",
    )


def test_running_job_names_its_worker_and_its_time(driver: LedgerDriver) -> None:
    """The explanation of a running job names its worker, its lease, its attempt and a cancel request."""
    driver.submit("a")
    driver.lease(lease_ms=3_000)
    driver.cancel("a")
    assert ask(driver, "a", IDLE) == (
        "RUNNING",
        "it runs: leased by w1 for another 3.0 s, attempt 1; it was asked to stop",
    )


def test_finished_job_says_how_it_ended(driver: LedgerDriver) -> None:
    """The explanation of a finished job names its state, its number of attempts and its summary."""
    driver.submit("a")
    driver.cancel("a", "not needed")
    assert ask(driver, "a", IDLE) == ("ENDED", "it ended CANCELED after 0 attempts: not needed")
