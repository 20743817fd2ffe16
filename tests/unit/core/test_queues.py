"""Modes of queues: a paused queue grants no jobs, a draining queue accepts no new ones."""

import pytest

from holdfast import limits
from holdfast.core import commands
from holdfast.core.commands import Refusal
from holdfast.core.lifecycle import DONE, FAILED, QUEUED, RUNNING
from holdfast.core.model import Extra, NewJob, QueueMode, Template
from holdfast.core.overview import queue_stats
from holdfast.errors import Code
from tests.unit.core.ledger_driver import LedgerDriver

OPEN, PAUSED, DRAINING = QueueMode
Q2 = Template("echo", "q2")


def test_paused_queue_takes_jobs_and_grants_none(driver: LedgerDriver) -> None:
    """A paused queue accepts jobs and grants none, while other queues grant jobs as before."""
    driver.set_mode("q2", PAUSED)
    assert driver.submit("a", template=Q2).job_ids == ["a"]
    driver.submit("b")
    assert driver.leased_ids(9) == ["b"]
    assert driver.leased_ids(9, queues=("q2",)) == []
    driver.set_mode("q2", OPEN)
    assert driver.leased_ids(9) == ["a"]


def test_pause_does_not_change_a_running_job(driver: LedgerDriver) -> None:
    """A running job of a paused queue can be extended and reported, and a retried one waits until the queue opens."""
    driver.submit("a", "b", template=Template("echo", max_attempts=2))
    leases = driver.lease(2)
    driver.set_mode("default", PAUSED)
    assert driver.extend().held == [1, 2]
    assert driver.report("a", leases[0].token, DONE) == ""
    assert driver.report("b", leases[1].token, FAILED, retry_after_ms=1) == ""
    driver.pass_ms(5)
    assert driver.leased_ids(9) == []
    driver.set_mode("default", OPEN)
    assert driver.leased_ids(9) == ["b"]


def test_draining_queue_grants_jobs_and_takes_no_new_ones(driver: LedgerDriver) -> None:
    """A draining queue refuses new jobs with a hint, and grants its waiting jobs, also after a lost worker."""
    driver.submit("a", template=Q2)
    driver.set_mode("q2", DRAINING)
    reply = driver.do(commands.Submit([Q2, Template("echo")], [NewJob("b", 0), NewJob("c", 1)]))
    assert reply.job_ids == ["", "c"]
    assert (reply.refusals[0].code, reply.refusals[0].reason) == (Code.FAILED_PRECONDITION, "QUEUE_DRAINING")
    assert "'q2' is draining" in reply.refusals[0].message
    assert "another queue" in reply.refusals[0].message
    assert driver.leased_ids(1, queues=("q2",)) == ["a"]
    driver.revoke()
    assert driver.job("a").state == QUEUED
    assert driver.leased_ids(1, queues=("q2",)) == ["a"]
    driver.set_mode("q2", OPEN)
    assert driver.submit("b", template=Q2).job_ids == ["b"]


def test_draining_queue_answers_a_repeat_with_the_existing_job(driver: LedgerDriver) -> None:
    """A draining queue answers a repeat by request id, id or unique key with the existing job."""
    driver.submit_keyed("a", "k", template=Q2)
    driver.submit("b", template=Q2)
    driver.submit_unique("c", "u", Q2)
    driver.set_mode("q2", DRAINING)
    assert driver.submit_keyed("x", "k", template=Q2).job_ids == ["a"]
    assert driver.submit("b", template=Q2).job_ids == ["b"]
    assert driver.submit_unique("y", "u", Q2).job_ids == ["c"]
    assert driver.submit("z", template=Q2, extra=Extra(request_id="new")).refusals[0].reason == "QUEUE_DRAINING"


def test_nothing_changed_is_no_event(driver: LedgerDriver) -> None:
    """Setting the mode and reason that a queue already has writes no event, but another reason does."""
    driver.set_mode("q2", OPEN, "why")
    assert driver.ledger.position == 0
    driver.set_mode("q2", PAUSED, "why")
    driver.set_mode("q2", PAUSED, "why")
    assert driver.ledger.position == 1
    driver.set_mode("q2", PAUSED, "other")
    driver.set_mode("q2", OPEN)
    driver.set_mode("q2", OPEN)
    assert (driver.ledger.position, driver.ledger.state.modes) == (3, {})


def test_digest_covers_modes_and_forgets_them(driver: LedgerDriver) -> None:
    """Each mode, reason and time changes the digest, and opening the queue restores the digest of before."""
    digests = [driver.ledger.digest]
    for mode, reason in ((PAUSED, ""), (DRAINING, ""), (DRAINING, "why")):
        driver.set_mode("q2", mode, reason)
        digests.append(driver.ledger.digest)
    assert len(set(digests)) == 4
    driver.set_mode("q2", OPEN)
    assert driver.ledger.digest == digests[0]


def test_modes_survive_restart_and_snapshot(driver: LedgerDriver) -> None:
    """A paused queue stays paused after a restart, from the log or from a snapshot."""
    driver.submit("a", template=Q2)
    driver.set_mode("q2", PAUSED, "on call")
    driver.set_mode("q1", DRAINING)
    for ledger in (driver.replayed(), driver.reloaded()):
        driver.restart(ledger)
        assert driver.leased_ids(9) == []
        assert driver.submit("x", template=Template("echo", "q1")).job_ids == [""]
        driver.check()


@pytest.mark.parametrize(
    ("queue", "mode", "reason", "expected"),
    [
        ("", PAUSED, "", "QUEUE_NAME_INVALID"),
        ("a b", PAUSED, "", "QUEUE_NAME_INVALID"),
        ("q", 7, "", "QUEUE_MODE_INVALID"),
        ("q", PAUSED, "x" * (limits.REASON_CHARS_MAX + 1), "REASON_TOO_LONG"),
        ("q", PAUSED, "\ud800", "REASON_INVALID"),
    ],
)
def test_change_that_says_nonsense_is_refused(
    driver: LedgerDriver, queue: str, mode: QueueMode, reason: str, expected: str
) -> None:
    """A change of mode with an invalid queue name, mode or reason is refused."""
    refusal = driver.set_mode(queue, mode, reason)
    assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, expected)


def test_queues_that_are_not_open_are_bounded(driver: LedgerDriver) -> None:
    """Above the limit of closed queues one more is refused, but closed queues can be changed and opened."""
    for number in range(limits.QUEUES_CLOSED_MAX):
        driver.set_mode(f"q{number}", PAUSED)
    refusal = driver.set_mode("more", PAUSED)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.reason) == (Code.RESOURCE_EXHAUSTED, "TOO_MANY_CLOSED_QUEUES")
    assert driver.set_mode("q0", DRAINING) is None
    assert driver.set_mode("q1", OPEN) is None
    assert driver.set_mode("more", PAUSED) is None


def test_statistics_count_each_queue(driver: LedgerDriver) -> None:
    """The statistics show each queue's mode, ready, delayed and running jobs, and the longest wait of a ready job."""
    driver.submit("a", "b", "c")
    driver.submit("d", template=Q2, not_before_ms=driver.log_ms + 50)
    driver.submit("e", template=Q2, not_before_ms=driver.log_ms + 90)
    driver.lease(1)
    driver.set_mode("q3", PAUSED, "why")
    driver.pass_ms(60)
    found = [
        (one.name, one.mode, one.reason, one.ready, one.delayed, one.running, one.oldest_age_ms)
        for one in queue_stats(driver.ledger, driver.log_ms)
    ]
    assert found == [
        ("default", OPEN, "", 2, 0, 1, 60),
        ("q2", OPEN, "", 1, 1, 0, 10),
        ("q3", PAUSED, "why", 0, 0, 0, 0),
    ]
    driver.cancel_queued("b", "c", "d", "e")
    assert [(one.name, one.running) for one in queue_stats(driver.ledger, driver.log_ms)] == [("default", 1), ("q3", 0)]
    assert driver.job("a").state == RUNNING
