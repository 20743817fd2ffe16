"""Ends: every violation beside the nearest history without one."""

import pytest
from msgspec.structs import replace

from holdfast_lab.check.faults import GRACE_US
from holdfast_lab.check.verdict import Status
from holdfast_lab.history.records import (
    CANCELED,
    DONE,
    FAILED,
    QUEUED,
    RUNNING,
    Answered,
    Asked,
    Began,
    Broken,
    Ended,
    EndFact,
    GrantFact,
    JobFact,
    JobSnapshot,
    JobSpec,
)
from tests.unit.lab_check.changes import Changed
from tests.unit.lab_check.neighbours import Change, Neighbours, names_of, suspects, tell_apart
from tests.unit.lab_check.plants import (
    canceled_by_nobody,
    done_by_nobody,
    failed_before_its_last_attempt,
    failed_by_nobody,
    poison_given_up,
    waiting_job,
    went_back_in_the_store,
)
from tests.unit.lab_check.sound_history import sound


def other_end_in_the_store(it: Changed) -> None:
    """Clients saw FAILED, but the job in the store, without a separate end, has another state."""
    it.drop(EndFact, job_id="poison")
    it.replace(JobFact, {"id": "poison"}, state=CANCELED)
    it.add(Asked(it.last_us(), "stop", "client-1", "cancel", "grpc", job_id="poison"))


def not_ended_in_the_store(it: Changed) -> None:
    """Covered by another rule: the state went back."""
    it.replace(JobFact, {"id": "poison"}, state=QUEUED)


def other_end_accepted(it: Changed) -> None:
    it.replace(EndFact, {"job_id": "poison"}, state=CANCELED)


def same_end_accepted(it: Changed) -> None:
    it.replace(EndFact, {"job_id": "poison"}, state=FAILED)


def shown_done_too_soon(it: Changed) -> None:
    """Shown DONE before the first attempt began."""
    at_us = it.one(Began, job_id="first").at_us
    it.add(Asked(at_us - 2, "peek", "client-2", "get", "grpc", job_id="first"))
    it.add(Answered(at_us - 1, "peek", seen=[JobSnapshot("first", DONE, "first")]))


def shown_done_in_time(it: Changed) -> None:
    it.replace(Answered, {"op": "peek"}, at_us=it.one(Answered, op="peek").at_us + 1)


def shown_canceled_too_soon(it: Changed) -> None:
    """Shown CANCELED before the first cancel was sent."""
    at_us = it.one(Asked, op=it.op_of("cancel", "canceled")).at_us
    it.add(Asked(at_us - 2, "peek", "client-2", "get", "grpc", job_id="canceled"))
    it.add(Answered(at_us - 1, "peek", seen=[JobSnapshot("canceled", CANCELED, "canceled")]))


def shown_canceled_in_time(it: Changed) -> None:
    it.replace(Answered, {"op": "peek"}, at_us=it.one(Answered, op="peek").at_us + 1)


def swept_away(it: Changed, call: str) -> None:
    at_us = it.last_us()
    it.add(Asked(at_us, "sweep", "client-1", call, "grpc"), Answered(at_us + 1, "sweep"))


def purged(it: Changed) -> None:
    swept_away(it, "purge")


def shut_down(it: Changed) -> None:
    swept_away(it, "drain")


def let_go_by_its_schedule(it: Changed) -> None:
    it.replace(JobFact, {"id": "let-go"}, schedule="hourly")


def counted_grants(it: Changed) -> None:
    it.replace(JobFact, {"id": "poison"}, grants=2)


def told_grants(it: Changed) -> None:
    it.add(GrantFact("poison", 7, 1_000, "node-1"))


def begun_once(it: Changed) -> None:
    it.add(Began(it.last_us(), "r", "poison", 7, "worker-1"))


def no_worker_wrote_anything(it: Changed) -> None:
    it.drop(Began, Ended)


def given_up(it: Changed) -> None:
    """No fault was active, and the job was not tried again."""
    it.forget("again", "again-unnamed", "unheard-again", "unheard-named")
    poison_given_up(it)


def its_workers_were_lost(it: Changed) -> None:
    """Its workers were lost: that costs no attempt, but ends the job."""
    for answered in it.all(Answered):
        seen = [replace(one, reason="WORKER_LOST") if one.reason else one for one in answered.seen]
        it.replace(Answered, {"op": answered.op}, seen=seen)


def it_could_only_fail(it: Changed) -> None:
    """It fails in each of its attempts."""
    it.replace(Asked, {"op": it.op_of("submit", name="poison")}, wanted=[JobSpec("poison", max_attempts=2, fails=2)])


def one_more_was_counted(it: Changed) -> None:
    """The store counts one more grant than attempts that began."""
    it.replace(JobFact, {"id": "poison"}, grants=3)


def one_more_was_told(it: Changed) -> None:
    it.replace(JobFact, {"id": "poison"}, grants=0)
    it.add(GrantFact("poison", 21, 1_000, "node-1"))


def one_was_interrupted(it: Changed) -> None:
    it.replace(Ended, {"run": it.one(Began, job_id="poison").run}, outcome="interrupted")


def one_was_cut_off(it: Changed) -> None:
    it.drop(Ended, run=it.one(Began, job_id="poison").run)


def nobody_saw_it(it: Changed) -> None:
    it.drop(Began, job_id="poison")


def canceled_between(it: Changed) -> None:
    it.replace(JobFact, {"id": "poison"}, state=CANCELED)


def fault_long_before(it: Changed) -> None:
    given_up(it)
    it.replace(Began, {"job_id": "poison", "token": 7}, at_us=GRACE_US + 10)
    it.add(Broken(8, 9, "kill"))


def fault_before(it: Changed) -> None:
    it.replace(Broken, {}, until_us=10)


def fault_long_after(it: Changed) -> None:
    given_up(it)
    at_us = max(it.one(Ended, run=one.run).at_us for one in it.all(Began, job_id="poison")) + GRACE_US + 1
    it.add(Broken(at_us, at_us, "kill"))


def fault_after(it: Changed) -> None:
    it.replace(Broken, {}, at_us=it.one(Broken).at_us - 1)


def acknowledged_and_waiting(it: Changed) -> None:
    """The run ended before the job did, so the job is not lost."""
    waiting_job(it)
    it.run = replace(it.run, drained_us=0)


def said_to_be_drained(it: Changed) -> None:
    """Covered by another rule: the job is lost."""
    it.run = replace(it.run, drained_us=it.run.faults_ended_us + 1)


def waiting_though_drained(it: Changed) -> None:
    it.replace(JobFact, {"id": "made"}, state=QUEUED)


def ended_after_all(it: Changed) -> None:
    it.replace(JobFact, {"id": "made"}, state=DONE)


def drained_a_moment_late(it: Changed) -> None:
    it.run = replace(it.run, drained_us=it.run.faults_ended_us + 30_000_001)


def drained_at_the_last_moment(it: Changed) -> None:
    it.run = replace(it.run, drained_us=it.run.faults_ended_us + 30_000_000)


PAIRS: list[Neighbours] = [
    ("doubly terminal", "poison", other_end_in_the_store, not_ended_in_the_store),
    ("doubly terminal", "poison", other_end_accepted, same_end_accepted),
    ("illegal", "first", shown_done_too_soon, shown_done_in_time),
    ("illegal", "canceled", shown_canceled_too_soon, shown_canceled_in_time),
    ("illegal", "let-go", canceled_by_nobody, purged),
    ("illegal", "let-go", canceled_by_nobody, shut_down),
    ("illegal", "let-go", canceled_by_nobody, let_go_by_its_schedule),
    ("illegal", "second", done_by_nobody, no_worker_wrote_anything),
    ("illegal", "poison", failed_by_nobody, counted_grants),
    ("illegal", "poison", failed_by_nobody, told_grants),
    ("illegal", "poison", failed_by_nobody, begun_once),
    ("poison", "poison", failed_before_its_last_attempt, its_workers_were_lost),
    ("poison", "poison", failed_before_its_last_attempt, it_could_only_fail),
    ("poison", "poison", given_up, one_more_was_counted),
    ("poison", "poison", given_up, one_more_was_told),
    ("poison", "poison", given_up, one_was_interrupted),
    ("poison", "poison", given_up, one_was_cut_off),
    ("poison", "poison", given_up, nobody_saw_it),
    ("poison", "poison", given_up, canceled_between),
    ("poison", "poison", fault_long_before, fault_before),
    ("poison", "poison", fault_long_after, fault_after),
    ("drained", "first", acknowledged_and_waiting, said_to_be_drained),
    ("drained", "made", waiting_though_drained, ended_after_all),
    ("drained", "", drained_a_moment_late, drained_at_the_last_moment),
]


@pytest.mark.parametrize(("rule", "job_id", "plant", "excuse"), PAIRS, ids=names_of(PAIRS))
def test_violation_is_told_from_its_neighbour(rule: str, job_id: str, plant: Change, excuse: Change) -> None:
    """The rule finds only this job, and nothing once the excuse is applied."""
    tell_apart(rule, job_id, plant, excuse)


def test_end_with_one_source_is_not_compared() -> None:
    """An end is compared only if it has two sources, such as the store's job and its end."""
    it = Changed(*sound())
    it.drop_calls(lambda asked: asked.call not in {"submit", "retry"})
    assert it.judge().ruling("doubly terminal").status is Status.KEPT
    it.drop(EndFact)
    assert it.judge().ruling("doubly terminal").status is Status.UNKNOWN


def test_readings_alone_show_whether_an_end_stays() -> None:
    """Two reads after the end are enough to check that it stays, even without the store."""
    it = Changed(*sound())
    it.drop(JobFact, GrantFact, EndFact)
    assert it.judge().ruling("unfinished").status is Status.KEPT


def test_job_that_was_read_while_it_waited_did_not_go_back() -> None:
    """Reads before the end, or sent before the end was received, do not contradict it."""
    it = Changed(*sound())
    at_us = it.one(Began, job_id="first").at_us
    heard_us = it.one(Answered, op=it.op_of("get", "first")).at_us
    for number, (asked_us, answered_us) in enumerate([(at_us - 9, at_us - 8), (at_us - 7, at_us - 6), (heard_us,) * 2]):
        it.add(Asked(asked_us, f"peek-{number}", "client-2", "get", "grpc", job_id="first"))
        it.add(Answered(answered_us, f"peek-{number}", seen=[JobSnapshot("first", RUNNING, "first")]))
    assert suspects(it, "unfinished") == []


@pytest.mark.parametrize("state", [QUEUED, RUNNING])
def test_job_that_has_not_ended_is_in_no_state_that_it_cannot_have(state: int) -> None:
    """A job that waits or runs needs no explanation."""
    it = Changed(*sound())
    it.replace(JobFact, {"id": "made"}, state=state)
    assert suspects(it, "illegal") == []


def test_end_that_was_shown_before_a_late_attempt_came_about_in_time() -> None:
    """An end shown before a late second attempt is legal, because the first attempt counts."""
    it = Changed(*sound())
    it.add(Began(it.last_us() + 1, "r", "first", 14, "worker-2"))
    assert suspects(it, "illegal") == []


def test_end_that_was_taken_back_is_not_two_ends() -> None:
    """A job that waits in the store has no end there that could differ from the one that was seen."""
    it = Changed(*sound())
    went_back_in_the_store(it)
    assert suspects(it, "doubly terminal") == []
    assert suspects(it, "unfinished") == ["first"]


def test_poison_that_had_all_its_attempts_in_peace_is_no_violation() -> None:
    """Without faults, exactly the maximal number of attempts is legal."""
    it = Changed(*sound())
    poison_given_up(it)
    it.replace(Asked, {"op": it.op_of("submit", name="poison")}, wanted=[JobSpec("poison", max_attempts=2, fails=2)])
    assert it.judge().ruling("poison").status is Status.KEPT
