"""Leases: their holder, their deadline, and reports without a valid lease."""

from typing import Any

import pytest

from holdfast.core import commands, image
from holdfast.core.commands import ReportRow
from holdfast.core.events import Extended, Reported
from holdfast.core.lifecycle import CANCELED, DONE, FAILED, QUEUED, RUNNING
from holdfast.core.model import FIXED, BackoffRule, Template
from holdfast.limits import OUTPUT_BYTES_MAX, QUARANTINE_MS, REASON_CHARS_MAX, SUMMARY_CHARS_MAX, UNSPENT_GRANTS_MAX
from tests.unit.core.ledger_driver import ECHO, LedgerDriver


@pytest.fixture
def running(driver: LedgerDriver) -> LedgerDriver:
    """A desk where w1 runs job a with token 1 and a lease of one second."""
    driver.submit("a", template=Template("echo", max_attempts=3, backoff=BackoffRule(FIXED, 0)))
    assert driver.run_one().token == 1
    return driver


# -- tokens


def test_tokens_only_grow(driver: LedgerDriver) -> None:
    """Each grant has a token of its own that is larger than all before it, also after a restart."""
    driver.submit("a", "b", "c")
    tokens = [lease.token for lease in driver.lease(2)]
    driver.revoke(reason="released")
    tokens += [lease.token for lease in driver.lease(1)]
    driver.restart(driver.reloaded())
    tokens += [lease.token for lease in driver.lease(2)]
    assert tokens == [1, 2, 3, 4, 5]


def test_attempt_is_counted_when_it_is_granted(running: LedgerDriver) -> None:
    """The ledger counts an attempt when it grants it, so that a job that kills its worker has been tried."""
    assert (running.job("a").attempts, running.job("a").state) == (1, RUNNING)


# -- time


def test_lease_expires_at_its_deadline_and_not_before(running: LedgerDriver) -> None:
    """A lease of a second is valid for 999 ms and expires at 1000, and the ledger counts the loss."""
    running.pass_ms(999)
    assert running.expire() == []
    running.pass_ms(1)
    assert running.ledger.leases.is_expiry_due(running.now)
    assert running.expire() == [("w1", 1)]
    assert (running.job("a").state, running.job("a").losses) == (QUEUED, 1)


def test_heartbeat_extends_all_leases_of_its_worker(driver: LedgerDriver) -> None:
    """A heartbeat extends all leases of its worker from now, and no leases of other workers."""
    driver.submit("a", "b", "c")
    driver.lease(2, worker="w1")
    driver.lease(1, worker="w2")
    driver.pass_ms(600)
    assert driver.extend("w1").held == [1, 2]
    driver.pass_ms(600)
    assert driver.expire() == [("w2", 3)]


def test_expired_lease_is_never_revived(running: LedgerDriver) -> None:
    """A heartbeat after the deadline reports no held leases, and the lease expires."""
    running.pass_ms(1_000)
    assert running.extend("w1") == commands.Heard([], [])
    assert running.extend("w1", held=set()) == commands.Heard([], [])
    assert running.expire() == [("w1", 1)]
    assert running.job("a").losses == 1


def test_shorter_extension_is_noticed_in_time(driver: LedgerDriver) -> None:
    """A heartbeat may shorten a lease, and the next deadline follows."""
    driver.submit("a")
    driver.lease(lease_ms=60_000)
    driver.extend(lease_ms=100)
    deadline_ms = driver.ledger.leases.next_deadline_ms()
    assert deadline_ms is not None
    assert deadline_ms <= 100
    driver.pass_ms(100)
    assert driver.expire() == [("w1", 1)]


def test_jump_of_the_wall_clock_expires_nothing(running: LedgerDriver) -> None:
    """Leases are measured in served time, so that a jump of the wall clock by a day expires none of them."""
    running.log_ms += 86_400_000
    assert running.expire() == []
    assert running.report("a", 1) == ""


def test_standing_wall_clock_keeps_no_lease_alive(running: LedgerDriver) -> None:
    """A wall clock that stands still does not stop served time."""
    running.served_ms += 1_000
    assert running.expire() == [("w1", 1)]


def test_all_leases_that_are_over_go_in_one_event(driver: LedgerDriver) -> None:
    """One event expires every overdue lease of every worker, in the order of their tokens."""
    driver.submit(*"abcd")
    driver.lease(2, worker="w2")
    driver.lease(1, worker="w1")
    driver.lease(1, worker="w3", lease_ms=5_000)
    driver.pass_ms(1_000)
    position = driver.ledger.position
    assert driver.expire() == [("w2", 1), ("w2", 2), ("w1", 3)]
    assert driver.ledger.position == position + 1


def test_watched_deadlines_are_bounded(driver: LedgerDriver) -> None:
    """Deadlines of leases that ended long before their time are reclaimed."""
    for number in range(5_000):
        driver.submit(f"a{number}")
        command = commands.GrantLeases("w1", frozenset({"echo"}), frozenset(), 1, 3_600_000)
        driver.do(command)
        driver.cancel(f"a{number}")
        driver.revoke(reason="released")
    assert len(driver.ledger.leases._deadlines) < 4_200


def test_job_that_is_handed_back_for_ever_ends_failed(driver: LedgerDriver) -> None:
    """A lease that is handed back counts as a loss once its job was handed back too often."""
    driver.submit("a")
    grants = 0
    while driver.job("a").state == QUEUED:
        driver.lease()
        driver.revoke(reason="released")
        grants += 1
    assert driver.job("a").state == FAILED
    assert grants == UNSPENT_GRANTS_MAX + ECHO.max_losses + 1


# -- the last chance

RISKY = Template("echo", max_losses=2)


def _lose_both(driver: LedgerDriver, times: int) -> None:
    for _ in range(times):
        driver.lease(2)
        driver.revoke()


def test_job_on_its_last_chance_runs_alone(driver: LedgerDriver) -> None:
    """After the allowed number of losses, jobs that were lost together are granted one by one."""
    driver.submit("a", "b", template=RISKY)
    _lose_both(driver, 2)
    assert [lease.job_id for lease in driver.lease(2)] == ["a"]
    assert driver.lease(2) == []
    driver.revoke()
    assert driver.job("a").state == FAILED
    assert [lease.job_id for lease in driver.lease(2)] == ["b"]


def test_solitude_of_a_last_chance_ends(driver: LedgerDriver) -> None:
    """After a minute a worker with such a job gets others too, and such a job that waits need not run alone."""
    driver.submit("a", "b", template=RISKY)
    _lose_both(driver, 2)
    driver.lease(2, lease_ms=600_000)
    driver.submit("c", template=Template("echo"))
    assert driver.lease(2) == []
    driver.log_ms += QUARANTINE_MS
    assert [lease.job_id for lease in driver.lease(2)] == ["b", "c"]


def test_job_on_its_last_chance_waits_for_a_worker_that_is_free(driver: LedgerDriver) -> None:
    """A busy worker gets neither a job on its last chance nor the jobs behind it, but a free worker gets it."""
    driver.submit("a", template=RISKY)
    driver.submit("other", template=Template("echo", queue="elsewhere"))
    _lose_both(driver, 1)
    driver.submit("b", "c", template=RISKY)
    _lose_both(driver, 1)
    assert driver.job("a").losses == 2
    busy = driver.lease(1, queues=("elsewhere",))
    assert [lease.job_id for lease in busy] == ["other"]
    assert driver.lease(3, queues=("default",)) == []
    assert [lease.job_id for lease in driver.lease(3, worker="w2", queues=("default",))] == ["a"]
    assert [lease.job_id for lease in driver.lease(3, queues=("default",))] == ["b", "c"]


# -- restart


def _restart_later(driver: LedgerDriver, later_ms: int) -> int | None:
    """Restarts `later_ms` later in log time; returns the remaining time of the first lease."""
    driver.log_ms += later_ms
    driver.restart()
    driver.start()
    return driver.ledger.leases.next_deadline_ms()


@pytest.mark.parametrize("later_ms", [0, 400, 1_000, 60_000, 10**9])
def test_restart_renews_a_lease_despite_a_jump_of_the_wall_clock(running: LedgerDriver, later_ms: int) -> None:
    """After a restart a lease has its full length again, however long the downtime and whatever the clock's jump."""
    assert _restart_later(running, later_ms) == 1_000
    assert running.report("a", 1) == ""


def test_renewed_lease_expires_as_usual(running: LedgerDriver) -> None:
    """A worker that sends no heartbeat for a full lease after the restart loses its job."""
    _restart_later(running, 60_000)
    running.pass_ms(999)
    assert running.expire() == []
    running.pass_ms(1)
    assert running.report("a", 1) == "LEASE_EXPIRED"
    assert running.expire() == [("w1", 1)]
    assert running.job("a").state == QUEUED


def test_second_restart_renews_nothing_until_the_worker_was_heard(running: LedgerDriver) -> None:
    """A lease that was renewed once keeps its remaining time over further restarts, until its worker's heartbeat."""
    assert _restart_later(running, 0) == 1_000
    running.pass_ms(700)
    assert _restart_later(running, 0) == 300
    assert running.extend("w1").held == [1]
    assert _restart_later(running, 60_000) == 1_000


@pytest.mark.parametrize("step_ms", [0, 100])
def test_restarts_faster_than_a_lease_do_not_keep_a_dead_workers_lease_alive(
    running: LedgerDriver, step_ms: int
) -> None:
    """A dead worker's lease ends however often the coordinator restarts, even if log time does not advance."""
    left_ms = [_restart_later(running, step_ms) or 0 for _ in range(12)]
    assert left_ms == sorted(left_ms, reverse=True)
    assert left_ms[-1] <= 0
    assert running.expire() == [("w1", 1)]
    assert sum(left for left in left_ms if left > 0) <= 2 * 1_000


def test_restart_is_the_same_from_the_log_and_from_a_snapshot(running: LedgerDriver) -> None:
    """A snapshot keeps whether a lease was renewed and whether its worker has sent a heartbeat since."""
    for _ in range(3):
        _restart_later(running, 100)
        assert image.full_digest(running.reloaded()) == image.full_digest(running.replayed())
    running.restart(running.reloaded())
    running.extend("w1")
    assert image.full_digest(running.reloaded()) == image.full_digest(running.replayed())


def test_heartbeat_writes_nothing(running: LedgerDriver) -> None:
    """Heartbeats extend the leases of a worker without writing to the journal."""
    position = running.ledger.position
    for _ in range(100):
        running.pass_ms(999)
        assert running.extend("w1").held == [1]
    assert running.ledger.position == position
    running.pass_ms(999)
    assert running.expire() == []
    assert running.report("a", 1) == ""


def test_first_heartbeat_after_a_restart_is_journaled_and_no_other(running: LedgerDriver) -> None:
    """Only the first heartbeat after a restart is written to the journal, because the next restart depends on it."""
    _restart_later(running, 0)
    position = running.ledger.position
    for _ in range(10):
        running.extend("w1")
    assert running.ledger.position == position + 1


def test_heartbeat_with_another_lease_length_is_journaled(running: LedgerDriver) -> None:
    """After a restart a lease has the length that its last heartbeat set."""
    running.extend("w1", lease_ms=5_000)
    assert _restart_later(running, 0) == 5_000


def test_journaled_heartbeats_of_before_are_replayed(running: LedgerDriver) -> None:
    """A journal in which every heartbeat is an event replays to the same leases."""
    for _ in range(3):
        running.pass_ms(500)
        running.take(Extended(running.log_ms, "w1", 1_000, [1]))
    running.check()
    assert running.replayed().state.leases[1].expires_ms == running.log_ms + 1_000
    assert _restart_later(running, 0) == 1_000


def test_lease_of_a_local_worker_names_the_process_that_served(driver: LedgerDriver) -> None:
    """After a restart, from the log or from a snapshot, a lease still names the process that hosted its worker."""
    driver.start("first")
    driver.submit("a", "b")
    driver.lease(1, is_local=True)
    driver.lease(1)
    driver.start("second")
    for ledger in (driver.ledger, driver.replayed(), driver.reloaded()):
        assert {token: lease.host for token, lease in ledger.state.leases.items()} == {1: "first", 2: ""}
        assert ledger.state.process == "second"


def test_worker_that_outlives_a_restart_goes_on(running: LedgerDriver) -> None:
    """A worker may extend and report after a restart as before."""
    running.restart(running.reloaded())
    assert running.extend("w1").held == [1]
    assert running.report("a", 1) == ""
    assert running.job("a").state == DONE


def test_extension_survives_a_restart(running: LedgerDriver) -> None:
    """The extension by a heartbeat is still valid after a replay."""
    running.pass_ms(900)
    running.extend("w1", lease_ms=1_000)
    assert _restart_later(running, 0) == 1_000


# -- reports


def test_first_terminal_report_wins(running: LedgerDriver) -> None:
    """The first result stays, whatever is reported after it."""
    assert running.report("a", 1, DONE, output=b"first") == ""
    assert running.report("a", 1, FAILED, output=b"second") == "ALREADY_FINISHED"
    result = running.job("a").result
    assert result is not None
    assert (result.state, result.output, result.token) == (DONE, b"first", 1)


def test_repeated_report_is_told_that_it_counts(running: LedgerDriver) -> None:
    """A worker that got no reply may send the same report again, which is accepted and changes nothing."""
    running.report("a", 1)
    position = running.ledger.position
    assert running.report("a", 1) == ""
    assert running.ledger.position == position


def test_late_report_is_refused_and_kept_as_evidence(running: LedgerDriver) -> None:
    """A report after the deadline is refused and recorded, even before the lease is revoked."""
    running.pass_ms(1_000)
    position = running.ledger.position
    assert running.report("a", 1) == "LEASE_EXPIRED"
    assert running.ledger.position == position + 1
    assert running.job("a").state == RUNNING


def test_stale_token_is_refused_for_ever(running: LedgerDriver) -> None:
    """A report with a revoked token is refused, also while another worker holds a lease of the job."""
    running.revoke()
    assert running.report("a", 1) == "STALE_TOKEN"
    running.lease(worker="w2")
    assert running.report("a", 1) == "STALE_TOKEN"
    assert running.report("a", 2, worker="w2") == ""
    assert running.report("a", 1) == "ALREADY_FINISHED"


def test_stale_token_extends_nothing(running: LedgerDriver) -> None:
    """A heartbeat of the former holder does not extend the lease of the present one."""
    running.revoke()
    running.lease(worker="w2")
    assert running.extend("w1", held={1, 2}).held == []
    running.pass_ms(1_000)
    assert running.expire() == [("w2", 2)]


def test_report_of_another_worker_is_refused(running: LedgerDriver) -> None:
    """The ledger accepts a report only from the worker that holds the lease."""
    assert running.report("a", 1, worker="w2") == "NOT_THE_HOLDER"
    assert running.report("a", 0, worker="w2") == "NOT_THE_HOLDER"
    assert running.job("a").state == RUNNING


def test_token_of_another_job_is_refused(running: LedgerDriver) -> None:
    """A report with a valid token of another job is refused."""
    running.submit("b", "c")
    running.lease(1)
    assert running.report("c", 2) == "STALE_TOKEN"
    assert running.report("b", 1) == "STALE_TOKEN"


def test_report_without_a_token_speaks_for_the_lease_held(running: LedgerDriver) -> None:
    """Token 0 stands for the lease that this worker holds on the job."""
    assert running.report("a", 0) == ""
    result = running.job("a").result
    assert result is not None
    assert result.token == 1
    assert running.report("a", 0) == "ALREADY_FINISHED"


def test_report_without_a_token_on_a_waiting_job_is_refused(driver: LedgerDriver) -> None:
    """A report with token 0 on a job without a lease is refused."""
    driver.submit("a")
    assert driver.report("a", 0) == "STALE_TOKEN"


def test_report_on_an_unknown_job_is_refused(driver: LedgerDriver) -> None:
    """A report on an unknown job is refused, also when the id is too long or is not valid Unicode."""
    assert driver.report("nobody" * 100, 1) == "UNKNOWN_JOB"
    assert driver.report("\ud800", 1) == "UNKNOWN_JOB"


def test_one_report_speaks_once_for_a_lease(running: LedgerDriver) -> None:
    """Of several rows for one lease the first counts, an equal one is a repeat, and a different one is refused."""
    rows = [ReportRow("a", 1, DONE), ReportRow("a", 1, DONE), ReportRow("a", 1, FAILED)]
    reply = running.do(commands.Report("w1", rows))
    assert reply.refused == ["", "", "ALREADY_FINISHED"]
    assert running.job("a").state == DONE


def test_second_row_after_a_retry_is_stale(running: LedgerDriver) -> None:
    """If the first row returned the job to its queue, the second row has a stale token."""
    rows = [ReportRow("a", 1, FAILED), ReportRow("a", 1, DONE)]
    assert running.do(commands.Report("w1", rows)).refused == ["", "STALE_TOKEN"]
    assert running.job("a").state == QUEUED


def test_bad_rows_do_not_spoil_good_ones(running: LedgerDriver) -> None:
    """The ledger judges a batch of reports row by row and writes one event."""
    running.submit("b")
    rows = [ReportRow("x", 9, DONE), ReportRow("a", 1, DONE), ReportRow("b", 1, DONE)]
    decision: Any = running.decide(commands.Report("w1", rows))
    assert isinstance(decision.event, Reported)
    assert decision.reply.refused == ["UNKNOWN_JOB", "", "STALE_TOKEN"]
    running.take(decision.event)
    assert running.job("a").state == DONE


def test_unrequested_cancel_is_a_failed_attempt(running: LedgerDriver) -> None:
    """A CANCELED report without a cancel request counts as a failed attempt and is retried."""
    assert running.report("a", 1, CANCELED) == ""
    assert (running.job("a").state, running.job("a").failures) == (QUEUED, 1)


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_output_limit_is_exact(running: LedgerDriver, over: int) -> None:
    """Output up to the limit is kept, but one more byte makes the job FAILED without output and without a retry."""
    assert running.report("a", 1, output=b"x" * (OUTPUT_BYTES_MAX + over)) == ""
    job = running.job("a")
    assert job.result is not None
    expected = (FAILED, 0, "OUTPUT_TOO_LARGE") if over > 0 else (DONE, OUTPUT_BYTES_MAX + over, "")
    assert (job.state, len(job.result.output), job.result.failure_reason) == expected


def test_texts_of_a_report_are_cut_and_made_writable(running: LedgerDriver) -> None:
    """Summaries and reasons are cut to their limits, and characters that are not UTF-8 are replaced."""
    running.report("a", 1, FAILED, is_retryable=False, summary="\udcff" * 2_000, failure_reason="é" * 2_000)
    result = running.job("a").result
    assert result is not None
    assert result.summary == "?" * SUMMARY_CHARS_MAX
    assert result.failure_reason == "é" * REASON_CHARS_MAX


# -- canceling


def test_queued_job_is_canceled_at_once_and_never_granted(driver: LedgerDriver) -> None:
    """The cancel of a waiting job ends it at once, and no worker gets the job."""
    driver.submit("a")
    reply = driver.cancel("a", "enough")
    assert (reply.state, reply.was_terminal, reply.token) == (CANCELED, False, 0)
    assert driver.lease(5) == []
    result = driver.job("a").result
    assert result is not None
    assert result.summary == "enough"


def test_running_job_is_marked_and_its_worker_is_told(running: LedgerDriver) -> None:
    """The cancel of a running job returns the token of its lease, and the worker's next heartbeat receives it."""
    reply = running.cancel("a")
    assert (reply.state, reply.was_terminal, reply.token) == (RUNNING, False, 1)
    assert running.extend("w1").cancels == [1]
    assert running.report("a", 1, CANCELED) == ""
    assert running.job("a").state == CANCELED


def test_second_cancel_changes_nothing(running: LedgerDriver) -> None:
    """A repeated cancel, or the cancel of a job that has ended, writes no event."""
    running.cancel("a")
    position = running.ledger.position
    assert running.cancel("a").token == 1
    running.report("a", 1)
    assert running.cancel("a") == commands.CancelReply(DONE, was_terminal=True)
    assert running.ledger.position == position + 1


def test_result_that_was_faster_than_the_cancel_counts(running: LedgerDriver) -> None:
    """A job that succeeds although its cancel was requested ends DONE."""
    running.cancel("a")
    running.report("a", 1, DONE)
    assert running.job("a").state == DONE


@pytest.mark.parametrize("reason", ["disconnected", "released"])
def test_canceled_job_that_loses_its_worker_is_canceled(running: LedgerDriver, reason: str) -> None:
    """A job whose cancel was requested does not run again after its lease has ended."""
    running.cancel("a")
    running.revoke(reason=reason)
    assert running.job("a").state == CANCELED


def test_cancel_of_an_unknown_job_is_refused(driver: LedgerDriver) -> None:
    """The ledger refuses to cancel an unknown job, and its message escapes a hostile id."""
    assert driver.cancel("nobody").reason == "JOB_NOT_FOUND"
    assert "\\x00" in driver.cancel("\0").message


# -- revoking


def test_released_lease_spends_nothing(running: LedgerDriver) -> None:
    """A lease that is handed back counts as no attempt, no failure and no loss."""
    assert running.revoke(reason="released") == [1]
    job = running.job("a")
    assert (job.state, job.failures, job.losses, job.attempts) == (QUEUED, 0, 0, 0)


def test_disconnected_lease_is_a_loss(running: LedgerDriver) -> None:
    """A lease whose worker disconnected counts as a loss."""
    running.revoke(reason="disconnected")
    assert running.job("a").losses == 1


def test_only_named_leases_are_taken_back(driver: LedgerDriver) -> None:
    """A revocation that names tokens revokes only those of them that the worker holds."""
    driver.submit(*"abc")
    driver.lease(2, worker="w1")
    driver.lease(1, worker="w2")
    assert driver.revoke("w1", tokens=frozenset({2, 3, 99})) == [2]
    assert set(driver.ledger.state.leases) == {1, 3}
    assert driver.revoke("nobody") == []


def test_heartbeat_revokes_leases_that_the_worker_does_not_list(driver: LedgerDriver) -> None:
    """A heartbeat revokes, without counting it, a lease older than the grace that its worker does not list."""
    driver.submit("a", "b")
    driver.lease(2)
    driver.pass_ms(100)
    assert driver.extend(held={1}, grace_ms=100).held == [1]
    assert (driver.job("b").state, driver.job("b").losses) == (QUEUED, 0)


def test_heartbeat_spares_leases_that_are_on_their_way(driver: LedgerDriver) -> None:
    """A heartbeat keeps a lease younger than the grace although its worker does not list it yet."""
    driver.submit("a")
    driver.lease()
    driver.pass_ms(99)
    assert driver.extend(held=set(), grace_ms=100).held == [1]
