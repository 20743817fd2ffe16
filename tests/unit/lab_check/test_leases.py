"""Leases: every violation beside the nearest history without one."""

import pytest
from msgspec.structs import replace

from holdfast_lab.check.faults import SPARING
from holdfast_lab.check.verdict import Status
from holdfast_lab.history.records import (
    CANCELED,
    DONE,
    FAILED,
    QUEUED,
    Answered,
    Began,
    Broken,
    Ended,
    EndFact,
    GrantFact,
    JobFact,
    JobSnapshot,
)
from holdfast_lab.torture.faults import FAULTS
from tests.unit.lab_check.changes import Changed
from tests.unit.lab_check.neighbours import Change, Neighbours, names_of, suspects, tell_apart
from tests.unit.lab_check.plants import cancel_accepted_while_it_waits, shown, stale_result, unlucky
from tests.unit.lab_check.sound_history import sound


def stale_under_the_first_token(it: Changed) -> None:
    """Tokens begin with 1, and only the store shows the end."""
    stale_result(it)
    it.drop_calls(lambda asked: asked.call == "list")
    it.drop(EndFact, job_id="killed")
    it.drop(GrantFact, job_id="killed")
    it.replace(Began, {"job_id": "killed", "token": 7}, token=1)


def later_attempt_counts(it: Changed) -> None:
    it.replace(JobFact, {"id": "killed"}, run=it.all(Began, job_id="killed")[1].run)


def stale_beside_a_grant(it: Changed) -> None:
    """The end came under the only token with an attempt, after a later token was granted."""
    it.replace(JobFact, {"id": "first"}, grants=2)
    it.add(GrantFact("first", 14, it.one(EndFact, job_id="first").place, "node-1"))


def ended_under_that_grant(it: Changed) -> None:
    it.replace(JobFact, {"id": "first"}, token=14, run="")
    it.replace(EndFact, {"job_id": "first"}, token=14)
    for op in (it.op_of("get", "first"), it.op_of("result", "first"), it.op_of("list")):
        seen = it.one(Answered, op=op).seen
        it.replace(Answered, {"op": op}, seen=[replace(one, run="") if one.id == "first" else one for one in seen])


def stale_end_of_a_job_that_is_gone(it: Changed) -> None:
    it.add(GrantFact("gone", 1, 1_000), GrantFact("gone", 2, 1_001), EndFact("gone", DONE, 1))


def newest_end_of_a_job_that_is_gone(it: Changed) -> None:
    it.replace(EndFact, {"job_id": "gone"}, token=2)


def stale_reading_of_a_job_that_is_gone(it: Changed) -> None:
    for token in (1, 2):
        it.add(Began(it.last_us() + 1, f"gone-{token}", "gone", token, "worker-1"))
    shown(it, JobSnapshot("gone", DONE, "gone", run="gone-1"))


def failed_reading_of_a_job_that_is_gone(it: Changed) -> None:
    """The output of a failed attempt is not a result."""
    seen = JobSnapshot("gone", FAILED, "gone", run="gone-1")
    it.replace(Answered, {"seen": [replace(seen, state=DONE)]}, seen=[seen])


def token_given_twice_and_never_begun(it: Changed) -> None:
    it.add(GrantFact("let-go", 7, 1_000, "node-1"), GrantFact("let-go", 7, 1_001, "node-1"))


def tokens_that_are_not_kept(it: Changed) -> None:
    """The store keeps grants without their tokens."""
    it.replace(GrantFact, {}, token=0)
    it.replace(Began, {}, token=0)


def token_never_given(it: Changed) -> None:
    """The store's count equals its number of grants, so there was no other grant."""
    it.replace(Began, {"job_id": "poison", "token": 7}, token=8)


def one_more_that_is_not_told(it: Changed) -> None:
    it.replace(JobFact, {"id": "poison"}, grants=3)


def token_that_workers_do_not_know(it: Changed) -> None:
    it.replace(Began, {"job_id": "poison"}, token=0)


def granted_after_a_cancel_that_named_nobody(it: Changed) -> None:
    """A sweep canceled the job, and it was granted afterwards."""
    it.drop_calls(lambda asked: asked.job_id == "let-go")
    it.add(GrantFact("let-go", 7, 1_000, "node-1"))


def granted_before(it: Changed) -> None:
    it.replace(GrantFact, {"job_id": "let-go"}, place=it.one(EndFact, job_id="let-go").place - 1)


def begun_after_a_cancel(it: Changed) -> None:
    """One microsecond after the response to the cancel, and the store does not keep the order of the end."""
    it.replace(EndFact, {"job_id": "canceled"}, place=0)
    at_us = it.one(Answered, op=it.op_of("cancel", "canceled")).at_us
    it.add(Began(at_us + 1, "r", "canceled", 7, "worker-1"), GrantFact("canceled", 7, 1_000, "node-1"))


def begun_at_the_time_of_the_answer(it: Changed) -> None:
    it.replace(Began, {"run": "r"}, at_us=it.one(Began, run="r").at_us - 1)


def held_up_by_a_fault(it: Changed) -> None:
    at_us = it.one(Began, run="r").at_us
    it.add(Broken(at_us - 60_000_000, at_us - 2, "pause", "worker-1"))


def not_canceled_itself(it: Changed) -> None:
    """The response showed that another job was canceled."""
    it.replace(Answered, {"op": it.op_of("cancel", "canceled")}, seen=[JobSnapshot("let-go", CANCELED)])


def begun_under_a_later_token(it: Changed) -> None:
    """One grant came before the cancel, but the attempt has a token that was never granted."""
    at_us = it.one(Answered, op=it.op_of("cancel", "canceled")).at_us
    it.replace(EndFact, {"job_id": "canceled"}, place=1_001)
    it.add(GrantFact("canceled", 7, 1_000, "node-1"), Began(at_us + 1, "r", "canceled", 8, "worker-1"))


def begun_under_the_token_given_before(it: Changed) -> None:
    it.replace(Began, {"run": "r"}, token=7)


def killed_meanwhile(it: Changed) -> None:
    it.add(Broken(it.run.begun_us + 3, it.run.begun_us + 4, "kill", "worker worker-1"))


def killed_shortly_before(it: Changed) -> None:
    """Its worker is considered lost some seconds later."""
    it.add(Broken(it.run.begun_us - 4_900_000, it.run.begun_us - 4_800_000, "stop", "worker worker-1, 0.1 s"))


def deaf_for_longer(it: Changed) -> None:
    """A connection that drops everything is noticed late."""
    it.add(Broken(it.run.begun_us - 19_900_000, it.run.begun_us - 19_800_000, "partition", "worker-2: nothing"))


def failed_by_itself(it: Changed) -> None:
    it.replace(JobFact, {"id": "unlucky"}, reason="BY_REQUEST")


def begun_before_it_was_seen(it: Changed) -> None:
    it.replace(Answered, {"op": "see"}, seen=[JobSnapshot("second", QUEUED, "second", attempts=1)])


def cancel_not_accepted(it: Changed) -> None:
    it.drop(Answered, op="let")


PAIRS: list[Neighbours] = [
    ("ran after cancel", "second", cancel_accepted_while_it_waits, begun_before_it_was_seen),
    ("ran after cancel", "second", cancel_accepted_while_it_waits, cancel_not_accepted),
    ("worker lost", "unlucky", unlucky, killed_meanwhile),
    ("worker lost", "unlucky", unlucky, killed_shortly_before),
    ("worker lost", "unlucky", unlucky, deaf_for_longer),
    ("worker lost", "unlucky", unlucky, failed_by_itself),
    ("stale accepted", "killed", stale_under_the_first_token, later_attempt_counts),
    ("stale accepted", "first", stale_beside_a_grant, ended_under_that_grant),
    ("stale accepted", "gone", stale_end_of_a_job_that_is_gone, newest_end_of_a_job_that_is_gone),
    ("stale accepted", "gone", stale_reading_of_a_job_that_is_gone, failed_reading_of_a_job_that_is_gone),
    ("two leases", "let-go", token_given_twice_and_never_begun, tokens_that_are_not_kept),
    ("two leases", "poison", token_never_given, one_more_that_is_not_told),
    ("two leases", "poison", token_never_given, token_that_workers_do_not_know),
    ("ran after cancel", "let-go", granted_after_a_cancel_that_named_nobody, granted_before),
    ("ran after cancel", "canceled", begun_after_a_cancel, begun_at_the_time_of_the_answer),
    ("ran after cancel", "canceled", begun_after_a_cancel, held_up_by_a_fault),
    ("ran after cancel", "canceled", begun_after_a_cancel, not_canceled_itself),
    ("ran after cancel", "canceled", begun_under_a_later_token, begun_under_the_token_given_before),
]


@pytest.mark.parametrize(("rule", "job_id", "plant", "excuse"), PAIRS, ids=names_of(PAIRS))
def test_violation_is_told_from_its_neighbour(rule: str, job_id: str, plant: Change, excuse: Change) -> None:
    """The rule finds only this job, and nothing once the excuse is applied."""
    tell_apart(rule, job_id, plant, excuse)


def test_fault_long_before_a_job_has_not_touched_it() -> None:
    """A fault that ended long before a job began cannot have cost its lease."""
    it = Changed(*sound())
    unlucky(it)
    it.add(Broken(it.run.begun_us - 9_000_000, it.run.begun_us - 8_000_000, "kill", "worker worker-1"))
    assert suspects(it, "worker lost") == ["unlucky"]


def test_faults_that_spare_leases_are_faults_that_there_are() -> None:
    """Every fault that spares leases exists."""
    assert set(FAULTS) >= SPARING


def test_ends_of_attempts_are_not_needed_where_results_and_states_are_one() -> None:
    """If results and states are stored together, a later token makes a result stale whenever the attempt ended."""
    it = Changed(*sound())
    it.replace(JobFact, {}, token=0)
    it.replace(EndFact, {}, token=0)
    cases = it.judge().ruling("stale accepted").cases
    it.drop(Ended)
    assert it.judge().ruling("stale accepted").cases == cases > 0


def test_job_that_is_gone_was_not_leased_twice() -> None:
    """A missing job has no count of grants to exceed, but it is lost."""
    it = Changed(*sound())
    it.forget("made")
    it.add(Began(it.last_us(), "r", "made", 7, "worker-1"))
    assert suspects(it, "two leases") == []
    assert suspects(it, "lost") == ["made"]


def test_result_that_is_reported_while_a_later_attempt_begins_is_not_stale() -> None:
    """At the same microsecond the order of the two is unknown, so the result is not stale."""
    it = Changed(*sound())
    first, later = it.all(Began, job_id="killed")[:2]
    stale_result(it)
    it.run = replace(it.run, results_apart=True)
    it.add(Ended(later.at_us, first.run, "done"))
    assert it.judge().ruling("stale accepted").status is Status.KEPT
