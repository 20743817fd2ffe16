"""Every rule finds the violation that was planted for it, and shows the records that prove it."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from holdfast.lab.check.judging import RULES
from holdfast.lab.check.ruling import Status
from holdfast.lab.history.records import (
    CANCELED,
    DONE,
    FAILED,
    QUEUED,
    Answered,
    Asked,
    Began,
    Broken,
    DamageFact,
    Ended,
    EndFact,
    GrantFact,
    JobFact,
    Refused,
    Seen,
    TickFact,
    Wanted,
)
from tests.unit.lab_check.changes import Changed
from tests.unit.lab_check.sound_history import EVERY_MS, WALL_MS, sound

Plant = Callable[[Changed], None]
COVERAGE = {"calls", "faults"}


def missing_job(it: Changed) -> None:
    it.drop(JobFact, id="first")
    it.drop(GrantFact, EndFact, job_id="first")


def waiting_job(it: Changed) -> None:
    it.replace(JobFact, {"id": "first"}, state=QUEUED)
    it.drop(EndFact, job_id="first")


def missing_retry(it: Changed) -> None:
    it.drop(JobFact, id="again")
    it.drop(GrantFact, EndFact, job_id="again")


def unknown_name(it: Changed) -> None:
    it.replace(JobFact, {"id": "made"}, name="nobody")


def refused_and_there(it: Changed) -> None:
    it.add(JobFact("ghost", "other", DONE, key="key2"), Began(it.last_us(), "g", "ghost", 1, "worker-1"))


def retry_of_nothing(it: Changed) -> None:
    it.add(JobFact("ghost", "first", FAILED, retry_of="first"))


def tick_of_nothing(it: Changed) -> None:
    it.add(JobFact("ghost", "", FAILED, schedule="other"))


def two_jobs_of_a_key(it: Changed) -> None:
    it.add(JobFact("keyed-2", "keyed", FAILED, key="key"))


def two_ids_of_a_key(it: Changed) -> None:
    it.replace(Answered, {"ids": ["keyed"], "existing": [0]}, ids=["first"])


def two_jobs_of_a_doubled_submit(it: Changed) -> None:
    it.add(JobFact("once-more", "once", FAILED))


def two_jobs_of_one_submit(it: Changed) -> None:
    it.add(JobFact("first-2", "first", FAILED))


def two_jobs_of_an_id(it: Changed) -> None:
    it.add(JobFact("named", "named", DONE, store="node-2"))


def another_id(it: Changed) -> None:
    it.replace(Asked, {"op": it.op_of("submit", name="once")}, wanted=[Wanted("once", id="mine")])


def one_retry_too_many(it: Changed) -> None:
    it.add(JobFact("third", "poison", FAILED))


def other_content_accepted(it: Changed) -> None:
    op = it.op_of("submit", name="other")
    at_us = it.one(Refused, op=op).at_us
    it.drop(Refused, op=op)
    it.add(Answered(at_us, op, ids=["other"]), JobFact("other", "other", FAILED))


def other_content_answered_as_there(it: Changed) -> None:
    op = it.op_of("submit", name="other")
    at_us = it.one(Refused, op=op).at_us
    it.drop(Refused, op=op)
    it.add(Answered(at_us, op, ids=["keyed"], existing=[0]))


def other_content_there(it: Changed) -> None:
    it.drop(Refused, op=it.op_of("submit", name="other"))
    it.add(JobFact("other", "other", FAILED, key="key"))


def not_found(it: Changed) -> None:
    op = it.op_of("get", "first")
    at_us = it.one(Answered, op=op).at_us
    it.drop(Answered, op=op)
    it.add(Refused(at_us, op, "NOT_FOUND"))


def two_ends(it: Changed) -> None:
    it.add(EndFact("first", DONE, 7))


def two_states(it: Changed) -> None:
    it.replace(JobFact, {"id": "poison"}, state=CANCELED)
    it.replace(EndFact, {"job_id": "poison"}, state=CANCELED)
    it.add(Asked(it.last_us(), "late-cancel", "client-1", "cancel", "grpc", job_id="poison"))


def two_results(it: Changed) -> None:
    run = it.one(Began, job_id="first").run
    op = it.op_of("get", "first")
    it.replace(Answered, {"op": op}, seen=[Seen("first", DONE, "first", 1, f"{run}-2")])
    it.add(Began(it.last_us(), f"{run}-2", "first", 7, "worker-2"))


def went_back(it: Changed) -> None:
    it.replace(Answered, {"op": it.op_of("result", "first")}, seen=[Seen("first", QUEUED, "first")])


def went_back_in_the_store(it: Changed) -> None:
    it.replace(JobFact, {"id": "first"}, state=QUEUED)


def done_by_nobody(it: Changed) -> None:
    run = it.one(Began, job_id="second").run
    it.drop(Began, job_id="second")
    it.drop(Ended, run=run)


def canceled_by_nobody(it: Changed) -> None:
    it.drop_calls(lambda asked: asked.call == "cancel" and asked.job_id == "let-go")


def strange_state(it: Changed) -> None:
    it.replace(JobFact, {"id": "made"}, state=9)


def poison_done(it: Changed) -> None:
    it.replace(JobFact, {"id": "poison"}, state=DONE)


def poison_given_up(it: Changed) -> None:
    it.drop(Broken)
    it.forget("twice-more")
    it.replace(Asked, {"op": it.op_of("submit", name="poison")}, wanted=[Wanted("poison", max_attempts=3, fails=3)])


def never_drained(it: Changed) -> None:
    it.run = replace(it.run, drained_us=0)


def not_drained(it: Changed) -> None:
    it.run = replace(it.run, drained_us=0)
    it.replace(JobFact, {"id": "made"}, state=QUEUED)


def drained_late(it: Changed) -> None:
    it.run = replace(it.run, drained_us=it.run.faults_ended_us + 31_000_000)


def stale_result(it: Changed) -> None:
    first = it.one(Began, job_id="killed")
    it.replace(JobFact, {"id": "killed"}, run=first.run, token=0)
    it.replace(EndFact, {"job_id": "killed"}, token=0)
    it.drop_calls(lambda asked: asked.job_id == "killed")


def stale_result_beside_its_state(it: Changed) -> None:
    first, later = it.all(Began, job_id="killed")[:2]
    stale_result(it)
    it.run = replace(it.run, results_apart=True)
    it.add(Ended(later.at_us + 1, first.run, "done"))


def stale_token(it: Changed) -> None:
    it.replace(EndFact, {"job_id": "again"}, token=7)


def result_of_nobody(it: Changed) -> None:
    it.replace(JobFact, {"id": "made"}, run="made-up")


def result_of_another_job(it: Changed) -> None:
    it.replace(JobFact, {"id": "made"}, run=it.one(Began, job_id="second").run)


def token_given_twice(it: Changed) -> None:
    it.add(GrantFact("first", 7, 1_000, "node-1"))


def token_used_twice(it: Changed) -> None:
    it.add(Began(it.last_us(), "r", "first", 7, "worker-2"))


def token_never_given(it: Changed) -> None:
    it.replace(JobFact, {"id": "poison"}, grants=0)
    it.replace(Began, {"job_id": "poison", "token": 7}, token=8)


def more_runs_than_grants(it: Changed) -> None:
    it.replace(JobFact, {"id": "poison"}, grants=1)


def began_after_cancel(it: Changed) -> None:
    it.drop(EndFact, job_id="canceled")
    it.add(Began(it.one(Began, job_id="first").at_us, "r", "canceled", 7, "worker-1"))
    it.add(GrantFact("canceled", 7, 1_000, "node-1"))


def granted_after_cancel(it: Changed) -> None:
    it.add(GrantFact("let-go", 7, 1_000, "node-1"))


def overtaken(it: Changed) -> None:
    first, second = it.one(GrantFact, job_id="first"), it.one(GrantFact, job_id="second")
    it.replace(GrantFact, {"job_id": "first"}, place=second.place)
    it.replace(GrantFact, {"job_id": "second", "token": second.token}, place=first.place)


def begun_early(it: Changed) -> None:
    due_ms = it.one(JobFact, id="later").not_before_ms
    it.replace(Began, {"job_id": "later"}, wall_ms=due_ms - 5)


def granted_early(it: Changed) -> None:
    due_ms = it.one(JobFact, id="later").not_before_ms
    it.replace(GrantFact, {"job_id": "later"}, at_ms=due_ms - 5)
    it.replace(Began, {"job_id": "later"}, wall_ms=0)


def slow_answer(it: Changed) -> None:
    it.replace(Answered, {"op": it.op_of("get", "first")}, at_us=it.last_us() + 16_000_000)


def no_answer(it: Changed) -> None:
    it.drop(Answered, op=it.op_of("get", "first"))
    it.add(Asked(it.last_us() + 16_000_000, "still-there", "client-1", "list", "grpc"))


def tick_twice(it: Changed) -> None:
    it.add(TickFact("hourly", WALL_MS, "fired", "tick-0b"), JobFact("tick-0b", "", FAILED, schedule="hourly"))


def tick_without_job(it: Changed) -> None:
    it.drop(JobFact, id="tick-3")
    it.drop(GrantFact, EndFact, job_id="tick-3")


def tick_shares_a_job(it: Changed) -> None:
    it.replace(TickFact, {"tick_ms": WALL_MS + EVERY_MS}, outcome="fired", job_id="tick-0")


def tick_unspoken_of(it: Changed) -> None:
    it.replace(TickFact, {"tick_ms": WALL_MS + EVERY_MS}, passed=0)


def another_interface(it: Changed) -> None:
    op = next(
        record.op
        for record in it.records
        if isinstance(record, Asked) and record.via == "http" and record.job_id == "first"
    )
    seen = it.one(Answered, op=op).seen[0]
    it.replace(Answered, {"op": op}, seen=[Seen(seen.id, seen.state, seen.name, seen.attempts + 1, seen.run)])


def damage(it: Changed) -> None:
    it.add(DamageFact("replay gives another state", "first"))


def damage_of_no_job(it: Changed) -> None:
    it.add(DamageFact("the counts do not add up"))


def end_of_no_job(it: Changed) -> None:
    it.add(EndFact("ghost", DONE))


#: The rule, the job, and what does it.
PLANTS: list[tuple[str, str, Plant]] = [
    ("lost", "first", missing_job),
    ("lost", "first", waiting_job),
    ("lost", "again", missing_retry),
    ("unasked", "made", unknown_name),
    ("unasked", "ghost", refused_and_there),
    ("unasked", "ghost", retry_of_nothing),
    ("unasked", "ghost", tick_of_nothing),
    ("duplicated", "keyed-2", two_jobs_of_a_key),
    ("duplicated", "first", two_ids_of_a_key),
    ("duplicated", "once-more", two_jobs_of_a_doubled_submit),
    ("duplicated", "first-2", two_jobs_of_one_submit),
    ("duplicated", "named", two_jobs_of_an_id),
    ("duplicated", "once", another_id),
    ("duplicated", "third", one_retry_too_many),
    ("key reused", "keyed", other_content_accepted),
    ("key reused", "keyed", other_content_answered_as_there),
    ("key reused", "keyed", other_content_there),
    ("invisible", "first", not_found),
    ("doubly terminal", "first", two_ends),
    ("doubly terminal", "poison", two_states),
    ("doubly terminal", "first", two_results),
    ("unfinished", "first", went_back),
    ("unfinished", "first", went_back_in_the_store),
    ("illegal", "second", done_by_nobody),
    ("illegal", "let-go", canceled_by_nobody),
    ("illegal", "made", strange_state),
    ("poison", "poison", poison_done),
    ("poison", "poison", poison_given_up),
    ("drained", "made", not_drained),
    ("drained", "", drained_late),
    ("drained", "", never_drained),
    ("stale accepted", "killed", stale_result),
    ("stale accepted", "killed", stale_result_beside_its_state),
    ("stale accepted", "again", stale_token),
    ("stale accepted", "made", result_of_nobody),
    ("stale accepted", "made", result_of_another_job),
    ("two leases", "first", token_given_twice),
    ("two leases", "first", token_used_twice),
    ("two leases", "poison", token_never_given),
    ("two leases", "poison", more_runs_than_grants),
    ("ran after cancel", "canceled", began_after_cancel),
    ("ran after cancel", "let-go", granted_after_cancel),
    ("out of order", "first", overtaken),
    ("early", "later", begun_early),
    ("early", "later", granted_early),
    ("hung", "first", slow_answer),
    ("hung", "first", no_answer),
    ("tick doubled", "tick-0b", tick_twice),
    ("tick missed", "tick-3", tick_without_job),
    ("tick missed", "tick-0", tick_shares_a_job),
    ("tick missed", "", tick_unspoken_of),
    ("interfaces", "first", another_interface),
    ("sound", "first", damage),
    ("sound", "", damage_of_no_job),
    ("sound", "ghost", end_of_no_job),
]


def test_every_promise_is_kept_where_nothing_was_planted() -> None:
    """The history that violations are planted in keeps every promise, and puts every one to the test."""
    verdict = Changed(*sound()).judge()
    assert {ruling.rule: ruling.status for ruling in verdict.rulings if ruling.status is not Status.KEPT} == {}
    assert verdict.is_kept


def test_every_rule_has_a_planted_violation() -> None:
    """No rule goes untested, except those that only say whether anything was tried."""
    assert {rule for rule, _, _ in PLANTS} == {rule.name for rule in RULES} - COVERAGE


@pytest.mark.parametrize(("rule", "job_id", "plant"), PLANTS, ids=[plant.__name__ for _, _, plant in PLANTS])
def test_planted_violation_is_found(rule: str, job_id: str, plant: Plant) -> None:
    """It is found by its rule, for its job, and the evidence is that job's history in the order of time."""
    it = Changed(*sound())
    plant(it)
    verdict = it.judge()
    ruling = verdict.ruling(rule)
    assert ruling.status is Status.BROKEN
    assert not verdict.is_kept
    assert ruling in verdict.broken
    finding = next(finding for finding in ruling.findings if finding.job_id == job_id)
    assert finding.text
    times = [line.at_us for line in finding.evidence if line.at_us is not None]
    assert times == sorted(times)
    if job_id:
        assert any(job_id in line.what for line in finding.evidence)


@pytest.mark.parametrize(("rule", "job_id", "plant"), PLANTS, ids=[plant.__name__ for _, _, plant in PLANTS])
def test_other_rules_do_not_cry_along(rule: str, job_id: str, plant: Plant) -> None:
    """What other rules say of a planted violation is about the same job."""
    it = Changed(*sound())
    plant(it)
    verdict = it.judge()
    others = {(finding.rule, finding.job_id) for finding in verdict.findings if finding.rule != rule}
    related = {
        job_id,
        *(
            line.record.id
            for finding in verdict.ruling(rule).findings
            for line in finding.evidence
            if isinstance(line.record, JobFact)
        ),
    }
    assert {one for one in others if one[1] not in related} == set()


def test_result_that_was_there_before_a_job_was_handed_out_again_is_not_stale() -> None:
    """Where results are kept apart from states, the first one may be written down before anybody knows of the end."""
    it = Changed(*sound())
    first, later = it.all(Began, job_id="killed")[:2]
    stale_result(it)
    it.run = replace(it.run, results_apart=True)
    it.add(Ended(later.at_us - 1, first.run, "done"))
    assert it.judge().ruling("stale accepted").status is Status.KEPT
