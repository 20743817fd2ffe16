"""The consistency of the store, and the coverage of a run: violations beside their harmless neighbours."""

import pytest
from msgspec.structs import replace

from holdfast_lab.check.verdict import Status
from holdfast_lab.history.records import (
    CANCELED,
    Answered,
    Asked,
    DamageFact,
    EndFact,
    GrantFact,
    JobFact,
)
from tests.unit.lab_check.changes import Changed
from tests.unit.lab_check.neighbours import Change, Neighbours, names_of, tell_apart
from tests.unit.lab_check.plants import damage_of_no_job, granted_after_its_end, more_runs_than_grants, time_went_back
from tests.unit.lab_check.sound_history import sound


def grants_are_not_counted(it: Changed) -> None:
    it.replace(JobFact, {"id": "poison"}, grants=0)


def as_many_as_are_told(it: Changed) -> None:
    it.replace(JobFact, {"id": "poison"}, grants=2)


def granted_at_the_same_time(it: Changed) -> None:
    it.replace(GrantFact, {"job_id": "second"}, at_ms=it.one(GrantFact, job_id="first").at_ms)


def granted_at_a_time_that_is_not_kept(it: Changed) -> None:
    it.replace(GrantFact, {"job_id": "second"}, at_ms=0)


def granted_by_another_store(it: Changed) -> None:
    it.replace(GrantFact, {"job_id": "second"}, store="node-2")


def granted_after_it_was_done(it: Changed) -> None:
    it.replace(EndFact, {"job_id": "first"}, token=0)
    it.replace(JobFact, {"id": "first"}, token=0, grants=2)
    it.add(GrantFact("first", 14, 1_000, "node-1"))


def granted_before_it_was_done(it: Changed) -> None:
    it.replace(GrantFact, {"place": 1_000}, place=it.one(EndFact, job_id="first").place - 1)


def granted_before_its_end(it: Changed) -> None:
    it.replace(GrantFact, {"place": 1_000}, place=it.one(EndFact, job_id="poison").place - 1)


def end_whose_place_is_not_kept(it: Changed) -> None:
    it.replace(EndFact, {"job_id": "poison"}, place=0)


def end_of_a_job_that_waits(it: Changed) -> None:
    it.replace(JobFact, {"id": "made"}, state=1)


def no_end_of_it(it: Changed) -> None:
    it.drop(EndFact, job_id="made")


def end_of_nothing(it: Changed) -> None:
    it.add(EndFact("ghost", CANCELED))


def end_of_something(it: Changed) -> None:
    it.add(JobFact("ghost", "", CANCELED))


PAIRS: list[Neighbours] = [
    ("sound", "poison", more_runs_than_grants, grants_are_not_counted),
    ("sound", "poison", more_runs_than_grants, as_many_as_are_told),
    ("sound", "second", time_went_back, granted_at_the_same_time),
    ("sound", "second", time_went_back, granted_at_a_time_that_is_not_kept),
    ("sound", "second", time_went_back, granted_by_another_store),
    ("sound", "poison", granted_after_its_end, granted_before_its_end),
    ("sound", "poison", granted_after_its_end, end_whose_place_is_not_kept),
    ("sound", "first", granted_after_it_was_done, granted_before_it_was_done),
    ("sound", "made", end_of_a_job_that_waits, no_end_of_it),
    ("sound", "ghost", end_of_nothing, end_of_something),
]


@pytest.mark.parametrize(("rule", "job_id", "plant", "excuse"), PAIRS, ids=names_of(PAIRS))
def test_violation_is_told_from_its_neighbour(rule: str, job_id: str, plant: Change, excuse: Change) -> None:
    """The rule finds only this job, and nothing once the excuse is applied."""
    tell_apart(rule, job_id, plant, excuse)


def test_evidence_shows_damage_that_is_of_no_job() -> None:
    """Damage without a job is shown by itself."""
    it = Changed(*sound())
    damage_of_no_job(it)
    (finding,) = it.judge().ruling("sound").findings
    assert [line.record for line in finding.evidence] == [it.one(DamageFact)]


def test_evidence_shows_the_grant_before_which_time_went_back() -> None:
    """The evidence shows the grants of both jobs."""
    it = Changed(*sound())
    time_went_back(it)
    (finding,) = it.judge().ruling("sound").findings
    assert {line.record.job_id for line in finding.evidence if isinstance(line.record, GrantFact)} == {
        "first",
        "second",
    }


# -- coverage of a run


def test_submit_of_which_every_job_was_refused_has_not_succeeded() -> None:
    """A submit of which every job was refused did not succeed."""
    it = Changed(*sound())
    submits = {asked.op for asked in it.all(Asked, call="submit")}
    it.records = [one for one in it.records if not (isinstance(one, Answered) and one.op in submits)]
    it.add(Asked(it.last_us(), "full", "client-1", "submit", "grpc", it.one(Asked, call="submit").wanted))
    it.add(Answered(it.last_us(), "full", [""], {0: "QUEUE_FULL"}))
    ruling = it.judge().ruling("calls")
    assert (ruling.status, ruling.reason) == (Status.UNKNOWN, "never succeeded: submit")


def test_everything_that_never_happened_is_named() -> None:
    """Calls and faults that never happened are named, in the order of the run's list."""
    it = Changed(*sound())
    it.run = replace(it.run, calls=["purge", *it.run.calls, "drain"], faults=["full-disk", *it.run.faults, "pause"])
    verdict = it.judge()
    assert verdict.ruling("calls").reason == "never succeeded: purge, drain"
    assert verdict.ruling("faults").reason == "never fired: full-disk, pause"
