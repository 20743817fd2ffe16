"""Every rule finds the violation that was planted for it, and shows the records that prove it."""

import pytest
from msgspec.structs import replace

from holdfast_lab.check.judge import RULES
from holdfast_lab.check.verdict import Status
from holdfast_lab.history.records import Began, Ended, JobFact
from tests.unit.lab_check.changes import Changed
from tests.unit.lab_check.plants import PLANTS, Plant, stale_result
from tests.unit.lab_check.sound_history import sound

COVERAGE = {"calls", "faults"}
#: The number of cases in the sound history.
CASES = {
    "lost": 16,
    "unasked": 24,
    "invisible": 20,
    "duplicated": 3,
    "key reused": 1,
    "doubly terminal": 24,
    "unfinished": 24,
    "illegal": 24,
    "poison": 5,
    "drained": 24,
    "stale accepted": 6,
    "two leases": 22,
    "ran after cancel": 1,
    "worker lost": 3,
    "out of order": 17,
    "early": 1,
    "hung": 44,
    "tick doubled": 2,
    "tick missed": 2,
    "interfaces": 8,
    "sound": 24,
    "calls": 36,
    "faults": 2,
}


def test_every_promise_is_kept_where_nothing_was_planted() -> None:
    """The history without planted violations keeps every guarantee, and tests every one."""
    verdict = Changed(*sound()).judge()
    assert {ruling.rule: ruling.status for ruling in verdict.rulings if ruling.status is not Status.KEPT} == {}
    assert verdict.is_kept
    assert {ruling.reason for ruling in verdict.rulings} == {""}


def test_rules_report_their_number_of_cases() -> None:
    """Every rule reports its exact number of cases."""
    assert {ruling.rule: ruling.cases for ruling in Changed(*sound()).judge().rulings} == CASES


def test_every_rule_has_a_planted_violation() -> None:
    """Every rule has a planted violation, except those that only check the coverage of the run."""
    assert {rule for rule, _, _ in PLANTS} == {rule.name for rule in RULES} - COVERAGE


@pytest.mark.parametrize(("rule", "job_id", "plant"), PLANTS, ids=[plant.__name__ for _, _, plant in PLANTS])
def test_planted_violation_is_found(rule: str, job_id: str, plant: Plant) -> None:
    """The violation is found by its rule, for its job, with that job's history in order of time as evidence."""
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
    """Findings of other rules about a planted violation concern the same job."""
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


def test_order_of_records_does_not_matter() -> None:
    """Every violation is found equally often, in whatever order files are read."""
    for rule, _, plant in PLANTS:
        it = Changed(*sound())
        plant(it)
        ruling = it.judge().ruling(rule)
        it.records.reverse()
        again = it.judge().ruling(rule)
        assert (again.status, again.count, again.cases) == (ruling.status, ruling.count, ruling.cases), plant.__name__


def test_result_that_was_there_before_a_job_was_handed_out_again_is_not_stale() -> None:
    """If results are stored apart from states, the first result may be stored before the end is known."""
    it = Changed(*sound())
    first, later = it.all(Began, job_id="killed")[:2]
    stale_result(it)
    it.run = replace(it.run, results_apart=True)
    it.add(Ended(later.at_us - 1, first.run, "done"))
    assert it.judge().ruling("stale accepted").status is Status.KEPT
