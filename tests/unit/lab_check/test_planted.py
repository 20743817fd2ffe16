"""Every rule finds the violation that was planted for it, and shows the records that prove it."""

import pytest
from msgspec.structs import replace

from holdfast.lab.check.judging import RULES
from holdfast.lab.check.ruling import Status
from holdfast.lab.history.records import Began, Ended, JobFact
from tests.unit.lab_check.changes import Changed
from tests.unit.lab_check.plants import PLANTS, Plant, stale_result
from tests.unit.lab_check.sound_history import sound

COVERAGE = {"calls", "faults"}


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
