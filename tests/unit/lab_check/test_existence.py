"""Existence of jobs: every violation beside the nearest history without one."""

import pytest
from msgspec.structs import replace

from holdfast_lab.check.verdict import Status
from holdfast_lab.history.records import (
    CANCELED,
    QUEUED,
    RUNNING,
    Answered,
    Asked,
    JobFact,
    JobSpec,
    Lost,
    Refused,
    Schedule,
    TickFact,
)
from tests.unit.lab_check.changes import Changed
from tests.unit.lab_check.neighbours import Change, Neighbours, names_of, suspects, tell_apart
from tests.unit.lab_check.plants import (
    other_content_answered_as_there,
    retry_of_nothing,
    tick_of_nothing,
    waiting_job,
)
from tests.unit.lab_check.sound_history import EVERY_MS, WALL_MS, sound


def told_the_id_of_one_with_a_key(it: Changed) -> None:
    """The submit was sent under another key."""
    op = it.op_of("submit", name="second")
    it.replace(Asked, {"op": op}, wanted=[JobSpec("second", key="another", digest="two")])
    it.replace(Answered, {"op": op}, ids=["keyed"])


def asked_for_under_that_key(it: Changed) -> None:
    """Covered by another rule: other content under a key."""
    wanted = JobSpec("second", key="key", digest="two")
    it.replace(Asked, {"op": it.op_of("submit", name="second")}, wanted=[wanted])


def retry_was_told_of_another(it: Changed) -> None:
    it.forget("again")
    it.replace(Answered, {"ids": ["again"]}, ids=["first"])


def second_retry_was_told_of_another(it: Changed) -> None:
    """The id belongs to a job that a submit and a retry had returned before."""
    at_us = it.last_us()
    for op, job_id in (("third", "first"), ("fourth", "second")):
        it.add(Asked(at_us, op, "client-1", "retry", "grpc", job_id=job_id), Answered(at_us + 1, op, ["first"]))


def of_the_same_name(it: Changed) -> None:
    it.replace(Answered, {"ids": ["first"], "op": it.op_of("retry", "poison")}, ids=["again-unnamed"])


def retry_of_the_same_job(it: Changed) -> None:
    it.replace(Asked, {"op": "fourth"}, job_id="first")


def retry_of_one_that_nobody_knows(it: Changed) -> None:
    it.replace(Asked, {"op": "fourth"}, job_id="nobody")


def one_job_for_two_submits(it: Changed) -> None:
    """Each of two submits without id and key should get its own job, but both got the same one."""
    lost = it.one(Asked, op=it.op_of("submit", name="plain"))
    it.drop(Lost, op=lost.op)
    it.add(Answered(lost.at_us + 1, lost.op, ["plain-again"]))


def told_of_the_other(it: Changed) -> None:
    it.replace(Answered, {"op": it.op_of("submit", name="plain")}, ids=["plain"])


def the_same_under_a_key(it: Changed) -> None:
    for asked in it.all(Asked, call="submit", wanted=[JobSpec("plain")]):
        it.replace(Asked, {"op": asked.op}, wanted=[JobSpec("plain", key="plain")])


def one_job_with_and_without_a_key(it: Changed) -> None:
    one_job_for_two_submits(it)
    it.replace(Asked, {"op": it.op_of("submit", name="plain")}, wanted=[JobSpec("plain", key="plain")])


def waiting_and_acknowledged(it: Changed) -> None:
    waiting_job(it)


def not_drained(it: Changed) -> None:
    it.run = replace(it.run, drained_us=0)


def schedule_of_the_run(it: Changed) -> None:
    it.run = replace(it.run, schedules=[*it.run.schedules, Schedule("other", EVERY_MS, WALL_MS, WALL_MS)])


def schedule_of_a_tick(it: Changed) -> None:
    it.add(TickFact("other", WALL_MS, "skipped"))


def not_found_later(it: Changed) -> None:
    """A microsecond after the response to its submit."""
    look_for_named(it, it.one(Answered, ids=["named"], existing=[]).at_us + 1)


def not_found_before(it: Changed) -> None:
    it.drop_calls(lambda asked: asked.op == "look")
    look_for_named(it, it.one(Answered, ids=["named"], existing=[]).at_us)


def look_for_named(it: Changed, at_us: int) -> None:
    it.add(Asked(at_us, "look", "client-2", "get", "grpc", job_id="named"), Refused(at_us + 1, "look", "NOT_FOUND"))


def refused_for_something_else(it: Changed) -> None:
    it.replace(Refused, {"op": "look"}, code="PERMISSION_DENIED")


PAIRS: list[Neighbours] = [
    ("lost", "keyed", told_the_id_of_one_with_a_key, asked_for_under_that_key),
    ("lost", "first", retry_was_told_of_another, of_the_same_name),
    ("lost", "first", second_retry_was_told_of_another, retry_of_the_same_job),
    ("lost", "first", second_retry_was_told_of_another, retry_of_one_that_nobody_knows),
    ("lost", "plain-again", one_job_for_two_submits, told_of_the_other),
    ("lost", "plain-again", one_job_for_two_submits, the_same_under_a_key),
    ("lost", "plain-again", one_job_with_and_without_a_key, the_same_under_a_key),
    ("lost", "first", waiting_and_acknowledged, not_drained),
    ("unasked", "ghost", tick_of_nothing, schedule_of_the_run),
    ("unasked", "ghost", tick_of_nothing, schedule_of_a_tick),
    ("invisible", "named", not_found_later, not_found_before),
    ("invisible", "named", not_found_later, refused_for_something_else),
]


@pytest.mark.parametrize(("rule", "job_id", "plant", "excuse"), PAIRS, ids=names_of(PAIRS))
def test_violation_is_told_from_its_neighbour(rule: str, job_id: str, plant: Change, excuse: Change) -> None:
    """The rule finds only this job, and nothing once the excuse is applied."""
    tell_apart(rule, job_id, plant, excuse)


def test_unacknowledged_job_is_not_lost_while_it_waits() -> None:
    """A job that was never acknowledged is not lost while it waits, but it counts as not drained."""
    it = Changed(*sound())
    it.replace(JobFact, {"id": "made"}, state=RUNNING)
    assert suspects(it, "lost") == []
    assert suspects(it, "drained") == ["made"]


def test_run_that_ended_before_its_jobs_has_a_note() -> None:
    """A run that ended before its jobs keeps the rule, with a note."""
    it = Changed(*sound())
    not_drained(it)
    ruling = it.judge().ruling("lost")
    assert ruling.status is Status.KEPT
    assert "the run ended before all jobs had ended" in ruling.reason


def test_other_content_that_was_answered_as_there_is_not_lost() -> None:
    """A submit that got the existing job of its key is covered by the rule about keys."""
    it = Changed(*sound())
    other_content_answered_as_there(it)
    assert suspects(it, "lost") == []
    assert suspects(it, "key reused") == ["keyed"]


def test_tick_names_its_job_also_where_the_job_does_not_name_its_schedule() -> None:
    """A tick that names its job explains it, even if the job does not name its schedule."""
    it = Changed(*sound())
    it.replace(JobFact, {"id": "tick-0"}, schedule="")
    assert suspects(it, "unasked") == []


def test_job_with_an_id_in_a_response_is_explained() -> None:
    """A job whose id was in a response to a submit or retry is explained, whatever its name in the store."""
    it = Changed(*sound())
    it.replace(JobFact, {"id": "first"}, name="nobody")
    at_us = it.last_us()
    it.add(Asked(at_us, "anew", "client-1", "retry", "grpc", job_id="tick-0"), Answered(at_us + 1, "anew", ["tick-0b"]))
    it.add(JobFact("tick-0b", "", CANCELED))
    assert suspects(it, "unasked") == []
    assert suspects(it, "lost") == ["first"]


def test_job_that_no_retry_explains_is_reported_by_one_rule() -> None:
    """A job that no retry explains is reported by one rule only."""
    it = Changed(*sound())
    retry_of_nothing(it)
    assert suspects(it, "duplicated") == []
    assert suspects(it, "unasked") == ["ghost"]


def test_retry_that_was_answered_without_an_id_may_have_made_a_job() -> None:
    """A retry with a response without an id may have created a job, as without a response."""
    for ids in ([], [""]):
        it = Changed(*sound())
        it.replace(Answered, {"ids": ["again"]}, ids=ids)
        assert it.judge().broken == []


def test_job_that_only_waits_and_was_not_acknowledged_can_be_out_of_sight() -> None:
    """A job that only waits and was not acknowledged may be not found."""
    it = Changed(*sound())
    asked = it.one(Asked, op=it.op_of("submit", name="first"))
    it.drop(Answered, op=asked.op)
    it.add(Lost(asked.at_us + 1, asked.op))
    it.replace(JobFact, {"id": "first"}, state=QUEUED)
    it.add(Asked(asked.at_us + 2, "look", "client-2", "get", "grpc", job_id="first"))
    it.add(Refused(asked.at_us + 3, "look", "NOT_FOUND"))
    assert suspects(it, "invisible") == []
