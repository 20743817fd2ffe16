"""Repeated calls: every violation beside the nearest history without one."""

import pytest

from holdfast_lab.check.verdict import Status
from holdfast_lab.history.records import (
    CANCELED,
    FAILED,
    Answered,
    Asked,
    Began,
    EndFact,
    GrantFact,
    JobFact,
    JobSpec,
    Lost,
    Refused,
)
from tests.unit.lab_check.changes import Changed
from tests.unit.lab_check.neighbours import Change, Neighbours, names_of, suspects, tell_apart
from tests.unit.lab_check.plants import (
    Plant,
    one_retry_made_two,
    retried_though_refused,
    two_jobs_of_a_key,
    two_jobs_of_one_submit,
)
from tests.unit.lab_check.sound_history import sound


def two_jobs_after_a_refusal(it: Changed) -> None:
    """Of two submits without id and key one was refused for lack of space, so the other made two jobs."""
    two_jobs_of_one_submit(it)
    it.add(Asked(1, "full", "client-1", "submit", "grpc", [JobSpec("first", digest="one")]))
    it.add(Refused(2, "full", "RESOURCE_EXHAUSTED"))


def both_may_have_been_done(it: Changed) -> None:
    it.drop(Refused, op="full")
    it.add(Lost(2, "full"))


def one_job_more_than_retries(it: Changed) -> None:
    """The retry without a response explains the job that names it, but not the other one."""
    retry(it, "unheard")
    it.add(JobFact("second-again", "second", CANCELED, retry_of="second"), JobFact("third", "second", CANCELED))


def retried_once_more(it: Changed) -> None:
    retry(it, "unheard-too")


def retry(it: Changed, op: str) -> None:
    """Adds a lost retry, before connections were duplicated."""
    at_us = it.one(Began, job_id="second").at_us
    it.add(Asked(at_us, op, "client-1", "retry", "grpc", job_id="second"), Lost(at_us + 1, op))


def retry_made_two_beside_a_refused_one(it: Changed) -> None:
    retry(it, "unheard")
    at_us = it.one(Lost, op="unheard").at_us
    it.add(Asked(at_us, "late", "client-1", "retry", "grpc", job_id="second"))
    it.add(Refused(at_us + 1, "late", "FAILED_PRECONDITION"))
    it.add(*(JobFact(job_id, "second", CANCELED, retry_of="second") for job_id in ("one", "two")))


def two_retries_explain_two_jobs(it: Changed) -> None:
    it.drop(Refused, op="late")


def other_content_by_the_same_name(it: Changed) -> None:
    """Submitted under an id and under a key, and the stored job has the key."""
    it.add(Asked(it.last_us(), "one", "client-1", "submit", "grpc", [JobSpec("thing", key="new", digest="one")]))
    it.add(Asked(it.last_us(), "two", "client-1", "submit", "grpc", [JobSpec("thing", key="new", digest="two")]))
    it.add(JobFact("thing", "thing", FAILED, key="new"))


def other_content_without_the_key(it: Changed) -> None:
    it.replace(Asked, {"op": "two"}, wanted=[JobSpec("thing", id="mine", digest="two")])


PAIRS: list[Neighbours] = [
    ("duplicated", "first-2", two_jobs_after_a_refusal, both_may_have_been_done),
    ("duplicated", "third", one_job_more_than_retries, retried_once_more),
    ("duplicated", "two", retry_made_two_beside_a_refused_one, two_retries_explain_two_jobs),
    ("key reused", "thing", other_content_by_the_same_name, other_content_without_the_key),
]


@pytest.mark.parametrize(("rule", "job_id", "plant", "excuse"), PAIRS, ids=names_of(PAIRS))
def test_violation_is_told_from_its_neighbour(rule: str, job_id: str, plant: Change, excuse: Change) -> None:
    """The rule finds only this job, and nothing once the excuse is applied."""
    tell_apart(rule, job_id, plant, excuse)


def test_repeat_is_checked_by_responses_or_by_the_store_alone() -> None:
    """Responses alone, or the store alone, are enough to check that a repeat made one job."""
    it = Changed(*sound())
    it.drop(JobFact, GrantFact, EndFact)
    assert it.judge().ruling("duplicated").cases == 3
    it = Changed(*sound())
    for asked in it.all(Asked, call="submit"):
        it.records = [
            Lost(one.at_us, one.op) if isinstance(one, Answered) and one.op == asked.op else one for one in it.records
        ]
    assert it.judge().ruling("duplicated").cases == 3


def test_same_content_that_was_refused_under_its_key_is_no_other_content() -> None:
    """A refused repeat of the same content does not test the key."""
    it = Changed(*sound())
    wanted = JobSpec("other", key="key", digest="one")
    it.replace(Asked, {"op": it.op_of("submit", name="other")}, wanted=[wanted])
    assert it.judge().ruling("key reused").status is Status.UNKNOWN


def test_jobs_of_refused_retries_are_not_too_many_of_them() -> None:
    """Jobs of refused retries are reported by one rule only."""
    it = Changed(*sound())
    retried_though_refused(it)
    assert suspects(it, "duplicated") == []
    assert suspects(it, "unasked") == ["again"]


@pytest.mark.parametrize(
    ("plant", "jobs"),
    [
        (two_jobs_of_a_key, {"keyed", "keyed-2"}),
        (one_retry_made_two, {"poison", "again", "again-unnamed", "more", "more-2"}),
    ],
)
def test_evidence_shows_every_job_of_the_two(plant: Plant, jobs: set[str]) -> None:
    """The evidence shows the stored state of both jobs, and of the job that was retried."""
    it = Changed(*sound())
    plant(it)
    finding = next(one for one in it.judge().ruling("duplicated").findings if one.job_id in jobs)
    assert jobs <= {line.record.id for line in finding.evidence if isinstance(line.record, JobFact)}
