"""Ticks: every violation beside the nearest history without one."""

import pytest
from msgspec.structs import replace

from holdfast_lab.check.verdict import Status
from holdfast_lab.history.records import CANCELED, EndFact, GrantFact, JobFact, Schedule, TickFact
from tests.unit.lab_check.changes import Changed
from tests.unit.lab_check.neighbours import Change, Neighbours, names_of, tell_apart
from tests.unit.lab_check.plants import (
    Plant,
    jobs_without_ticks,
    tick_between,
    tick_made_nothing,
    tick_twice,
    tick_unspoken_of,
)
from tests.unit.lab_check.sound_history import EVERY_MS, WALL_MS, sound

RULES = ("tick doubled", "tick missed")


def made_by_hand(it: Changed) -> None:
    it.add(TickFact("hourly", WALL_MS, "triggered", "tick-x"))


def made_by_a_retry(it: Changed) -> None:
    it.replace(JobFact, {"id": "tick-x"}, retry_of="tick-0")


def two_jobs_for_the_only_tick(it: Changed) -> None:
    """A schedule whose ticks do not name their jobs."""
    it.add(TickFact("other", WALL_MS, "fired"))
    it.add(*(JobFact(job_id, "", CANCELED, schedule="other") for job_id in ("other-1", "other-2")))


def two_ticks_for_two_jobs(it: Changed) -> None:
    it.add(TickFact("other", WALL_MS + EVERY_MS, "fired"))


def skipped_between(it: Changed) -> None:
    it.replace(TickFact, {"job_id": "tick-x"}, outcome="skipped")


def after_the_last_tick(it: Changed) -> None:
    """Ticks before the first or after the last expected one are not checked."""
    it.replace(TickFact, {"job_id": "tick-x"}, tick_ms=WALL_MS + 3 * EVERY_MS + 1)


def no_ticks_at_all(it: Changed) -> None:
    it.drop(TickFact)


def no_store_either(it: Changed) -> None:
    """Without the store the rule is unknown."""
    it.drop(JobFact, GrantFact, EndFact)


def another_schedule_spoke(it: Changed) -> None:
    tick_unspoken_of(it)
    it.add(TickFact("other", WALL_MS + 2 * EVERY_MS, "skipped"))


def this_schedule_spoke(it: Changed) -> None:
    it.replace(TickFact, {"schedule": "other"}, schedule="hourly")


def spoke_between_ticks(it: Changed) -> None:
    tick_unspoken_of(it)
    it.add(TickFact("hourly", WALL_MS + 2 * EVERY_MS + EVERY_MS // 2, "skipped"))


def spoke_at_the_tick(it: Changed) -> None:
    it.replace(
        TickFact,
        {"tick_ms": WALL_MS + 2 * EVERY_MS + EVERY_MS // 2, "schedule": "hourly"},
        tick_ms=WALL_MS + 2 * EVERY_MS,
    )


def passed_over_by_the_next(it: Changed) -> None:
    it.replace(TickFact, {"job_id": "tick-3"}, passed=1)


def passed_over_from_before_the_first(it: Changed) -> None:
    """Only expected ticks explain missing neighbours."""
    it.forget("tick-0")
    it.add(TickFact("hourly", WALL_MS - EVERY_MS, "skipped", passed=1))


def passed_over_from_after_the_last(it: Changed) -> None:
    it.forget("tick-3")
    it.add(TickFact("hourly", WALL_MS + 4 * EVERY_MS, "skipped", passed=1))


def passed_over_by_one_of_them(it: Changed) -> None:
    it.replace(TickFact, {"tick_ms": WALL_MS + EVERY_MS}, passed=2)


PAIRS: list[Neighbours] = [
    ("tick doubled", "", jobs_without_ticks, made_by_hand),
    ("tick doubled", "", jobs_without_ticks, made_by_a_retry),
    ("tick doubled", "", two_jobs_for_the_only_tick, two_ticks_for_two_jobs),
    ("tick doubled", "tick-x", tick_between, skipped_between),
    ("tick doubled", "tick-x", tick_between, after_the_last_tick),
    ("tick missed", "", no_ticks_at_all, no_store_either),
    ("tick missed", "", another_schedule_spoke, this_schedule_spoke),
    ("tick missed", "", spoke_between_ticks, spoke_at_the_tick),
    ("tick missed", "", tick_unspoken_of, passed_over_by_the_next),
    ("tick missed", "", passed_over_from_before_the_first, passed_over_by_one_of_them),
    ("tick missed", "", passed_over_from_after_the_last, passed_over_by_one_of_them),
]


@pytest.mark.parametrize(("rule", "job_id", "plant", "excuse"), PAIRS, ids=names_of(PAIRS))
def test_violation_is_told_from_its_neighbour(rule: str, job_id: str, plant: Change, excuse: Change) -> None:
    """The rule finds only this job, and nothing once the excuse is applied."""
    tell_apart(rule, job_id, plant, excuse)


def test_schedule_may_begin_at_any_time() -> None:
    """Ticks are counted from the first one."""
    it = Changed(*sound())
    (schedule,) = it.run.schedules
    shifted = Schedule("hourly", EVERY_MS, schedule.first_ms + 1, schedule.last_ms + 1)
    it.run = replace(it.run, schedules=[shifted])
    it.records = [replace(one, tick_ms=one.tick_ms + 1) if isinstance(one, TickFact) else one for one in it.records]
    assert it.judge().is_kept


def test_schedule_that_was_seen_to_its_end_is_judged_though_others_were_made() -> None:
    """A schedule with a known end is checked, even if clients created other schedules."""
    it = Changed(*sound())
    it.run = replace(it.run, calls=[*it.run.calls, "schedule"])
    verdict = it.judge()
    assert {verdict.ruling(rule).status for rule in RULES} == {Status.KEPT}


def test_run_without_schedules_has_no_ticks_to_judge() -> None:
    """Without schedules in the run, ticks are not offered, although the store would keep them."""
    it = Changed(*sound())
    it.run = replace(it.run, schedules=[])
    it.drop(TickFact)
    it.forget("tick-0", "tick-3")
    verdict = it.judge()
    assert {verdict.ruling(rule).reason for rule in RULES} == {"there was no schedule"}
    assert {verdict.ruling(rule).status for rule in RULES} == {Status.NOT_OFFERED}


def test_ticks_count_also_where_no_jobs_were_read() -> None:
    """Ticks alone, without jobs, are enough, and their jobs are not missed."""
    it = Changed(*sound())
    no_store_either(it)
    verdict = it.judge()
    assert {verdict.ruling(rule).status for rule in RULES} == {Status.KEPT}


@pytest.mark.parametrize(
    ("rule", "plant", "ticks"),
    [
        ("tick doubled", tick_twice, [WALL_MS] * 2),
        ("tick doubled", tick_between, [WALL_MS + EVERY_MS // 2]),
        ("tick missed", tick_made_nothing, [WALL_MS + 3 * EVERY_MS]),
        ("tick missed", tick_unspoken_of, [WALL_MS + EVERY_MS, WALL_MS + 3 * EVERY_MS]),
    ],
)
def test_evidence_shows_the_ticks(rule: str, plant: Plant, ticks: list[int]) -> None:
    """The evidence shows the ticks, and the neighbours of a missing one."""
    it = Changed(*sound())
    plant(it)
    (finding,) = it.judge().ruling(rule).findings
    told = {id(line.record): line.record for line in finding.evidence}.values()
    assert sorted(one.tick_ms for one in told if isinstance(one, TickFact)) == ticks


def test_evidence_shows_both_jobs_of_a_tick() -> None:
    """The evidence shows both jobs of a tick."""
    it = Changed(*sound())
    tick_twice(it)
    (finding,) = it.judge().ruling("tick doubled").findings
    assert {line.record.id for line in finding.evidence if isinstance(line.record, JobFact)} == {"tick-0", "tick-0b"}


@pytest.mark.parametrize(("passed", "status"), [(1, Status.KEPT), (0, Status.BROKEN)])
def test_tick_passes_over_those_after_it_where_others_passed_those_before(passed: int, status: Status) -> None:
    """Ticks that the tick before has explained do not use up those of the next one."""
    it = Changed(*sound())
    it.drop(TickFact)
    it.forget("tick-0", "tick-3")
    it.run = replace(it.run, schedules=[Schedule("hourly", EVERY_MS, WALL_MS, WALL_MS + 4 * EVERY_MS)])
    for number, more in enumerate((1, passed, 0)):
        it.add(TickFact("hourly", WALL_MS + 2 * number * EVERY_MS, "fired", f"tick-{number}", more))
        it.add(JobFact(f"tick-{number}", "", CANCELED, schedule="hourly"))
    assert it.judge().ruling("tick missed").status is status
