"""Entries of the log about one job: details of failures, and its attempts."""

import msgspec

from holdfast.core import commands, image
from holdfast.core.commands import ReportRow
from holdfast.core.events import AnyEvent, Granted, Reported, Revocation, Revoked
from holdfast.core.failure import Failure
from holdfast.core.history import Attempt, Entry, about, attempts, entries
from holdfast.core.lifecycle import CANCELED, DONE, FAILED, QUEUED
from holdfast.core.model import FIXED, BackoffRule, Result, Template
from tests.unit.core.ledger_driver import LedgerDriver

BAD = msgspec.json.encode(Failure("ValueError", "bad", "Traceback of bad"))


def told(*events: AnyEvent) -> list[Entry]:
    """Returns the history of the job `a`."""
    return [entry for position, event in enumerate(events, 1) for entry in about(position, event, "a")]


def test_details_belong_to_the_history_of_a_job_alone() -> None:
    """The entry of a failed attempt has the traceback in the history of its job, but not in the feed of all jobs."""
    event = Reported(9, "w", [Result(1, DONE, b"out"), Result(2, QUEUED, BAD, "", "bad")], [], ["b", "a"])
    assert [entry.detail for entry in told(event)] == ["Traceback of bad"]
    assert [entry.detail for entry in entries(1, event)] == ["", ""]


def test_output_of_success_is_no_detail() -> None:
    """The output of a successful job is not shown as a failure detail, even if it looks like one."""
    assert [entry.detail for entry in told(Reported(9, "w", [Result(1, DONE, BAD)], [], ["a"]))] == [""]


def test_attempts_are_made_of_grants_and_their_ends() -> None:
    """Each attempt has its worker, its times, its outcome and its traceback."""
    found = attempts(
        told(
            Granted(10, "w1", 100, 1, ["a"]),
            Reported(11, "w1", [Result(1, QUEUED, BAD, "", "bad")], [], ["a"]),
            Granted(20, "w2", 100, 2, ["b", "a"]),
            Revoked(25, "w2", "expired", [Revocation(3, QUEUED, is_spent=True)], ["a"]),
            Granted(30, "w3", 100, 4, ["a"]),
        )
    )
    assert found == [
        Attempt(1, "w1", 1, 10, 11, "FAILED", "bad", "Traceback of bad"),
        Attempt(2, "w2", 3, 20, 25, "LOST", "expired, a loss"),
        Attempt(3, "w3", 4, 30, 0, "RUNNING"),
    ]


def test_last_attempt_has_the_outcome_of_the_job() -> None:
    """The last attempt of a job that ended DONE, FAILED or CANCELED has that outcome."""
    for state, outcome in ((DONE, "DONE"), (FAILED, "FAILED"), (CANCELED, "CANCELED")):
        grant, end = Granted(1, "w", 9, 1, ["a"]), Reported(2, "w", [Result(1, state)], [], ["a"])
        assert [one.outcome for one in attempts(told(grant, end))] == [outcome]


def test_lease_that_was_handed_back_is_no_attempt() -> None:
    """A lease that a worker handed back does not count as an attempt."""
    found = attempts(
        told(
            Granted(10, "w1", 100, 1, ["a"]),
            Revoked(11, "w1", "released", [Revocation(1, QUEUED, is_spent=False)], ["a"]),
            Granted(12, "w2", 100, 2, ["a"]),
        )
    )
    assert [(one.number, one.worker) for one in found] == [(1, "w2")]


def test_history_that_was_cut_off_still_numbers_the_last_attempt_right() -> None:
    """If the journal no longer holds the first attempts, the job's own count numbers the last one."""
    end = Reported(9, "w", [Result(7, FAILED, BAD, "", "bad")], [], ["a"])
    assert [(one.number, one.started_ms, one.ended_ms) for one in attempts(told(end), count=3)] == [(3, 0, 9)]


def test_description_of_a_retried_failure_is_journaled_and_not_held(driver: LedgerDriver) -> None:
    """The event of a retry stores the worker's failure description, but the state and its image do not."""
    driver.submit("a", template=Template("echo", max_attempts=2, backoff=BackoffRule(FIXED, 0)))
    empty = driver.ledger.state.bytes_held
    report = ReportRow("a", driver.run_one().token, FAILED, BAD, failure_reason="bad")
    decision = driver.decide(commands.Report("w1", [report]))
    assert isinstance(decision, commands.Decision)
    assert isinstance(decision.event, Reported)
    assert decision.event.results[0].output == BAD
    driver.do(commands.Report("w1", [report]))
    assert (driver.job("a").state, driver.job("a").result, driver.ledger.state.bytes_held) == (QUEUED, None, empty)
    assert not any(b"Traceback" in chunk for chunk in image.dump(driver.ledger))
