"""Time: every violation beside the nearest history without one."""

import pytest
from msgspec.structs import replace

from holdfast_lab.check.verdict import Status
from holdfast_lab.history.records import (
    DONE,
    Answered,
    Asked,
    Began,
    Broken,
    GrantFact,
    JobFact,
    JobSpec,
    Refused,
)
from tests.unit.lab_check.changes import Changed
from tests.unit.lab_check.neighbours import Change, Neighbours, names_of, suspects, tell_apart
from tests.unit.lab_check.sound_history import sound

#: A deadline of five seconds and a grace of ten.
PATIENCE_US = 15_000_000


def due_ms(it: Changed) -> int:
    job = it.one(JobFact, id="later")
    return int(job.not_before_ms or job.created_ms + 20)


def granted_too_early(it: Changed) -> None:
    """By the store's clock, by more than rounding."""
    it.replace(GrantFact, {"job_id": "later"}, at_ms=due_ms(it) - 3)


def granted_when_due(it: Changed) -> None:
    it.replace(GrantFact, {"job_id": "later"}, at_ms=due_ms(it) - 2)


def begun_too_early(it: Changed) -> None:
    """By the worker's clock, by more than a correction."""
    it.replace(Began, {"job_id": "later"}, wall_ms=due_ms(it) - 101)


def begun_when_due(it: Changed) -> None:
    it.replace(Began, {"job_id": "later"}, wall_ms=due_ms(it) - 100)


def too_early_after_its_making(it: Changed) -> None:
    """The store keeps when the job was created, but not when it is due."""
    it.replace(JobFact, {"id": "later"}, not_before_ms=0)
    granted_too_early(it)


def too_early_for_what_it_waits_for(it: Changed) -> None:
    """The store keeps when the job is due, but not when it was created."""
    it.replace(JobFact, {"id": "later"}, created_ms=0)
    granted_too_early(it)


def begun_again(it: Changed) -> None:
    """Then the due time may be that of the second attempt."""
    it.add(Began(it.last_us(), "r", "later", 14, "worker-1"))


def asked_for_at_once_as_well(it: Changed) -> None:
    """One of its two submits has no delay."""
    it.add(Asked(1, "now", "client-1", "submit", "grpc", [JobSpec("later")]))


def asked_for_sooner_as_well(it: Changed) -> None:
    it.add(Asked(1, "sooner", "client-1", "submit", "grpc", [JobSpec("later", delay_ms=17)]))


def too_early_though_refused_at_once(it: Changed) -> None:
    granted_too_early(it)
    asked_for_at_once_as_well(it)
    it.add(Refused(2, "now", "RESOURCE_EXHAUSTED"))


def nobody_knows_whether_at_once(it: Changed) -> None:
    it.drop(Refused, op="now")


def made_like_another(it: Changed) -> None:
    """A retry has no delay."""
    it.replace(JobFact, {"id": "later"}, retry_of="first")


def told_to_a_retry(it: Changed) -> None:
    at_us = it.last_us()
    it.add(Asked(at_us, "anew", "client-1", "retry", "grpc", job_id="first"), Answered(at_us + 1, "anew", ["later"]))


def too_slow(it: Changed) -> None:
    op = it.op_of("get", "first")
    it.replace(Answered, {"op": op}, at_us=it.one(Asked, op=op).at_us + PATIENCE_US + 1)


def in_time(it: Changed) -> None:
    op = it.op_of("get", "first")
    it.replace(Answered, {"op": op}, at_us=it.one(Asked, op=op).at_us + PATIENCE_US)


def never_answered(it: Changed) -> None:
    """Its client continued for longer than that."""
    op = it.op_of("get", "first")
    it.drop(Answered, op=op)
    it.add(Asked(it.one(Asked, op=op).at_us + PATIENCE_US + 1, "still-there", "client-1", "list", "grpc"))


def client_went_on_for_a_while(it: Changed) -> None:
    it.replace(Asked, {"op": "still-there"}, at_us=it.one(Asked, op="still-there").at_us - 1)


def another_client_went_on(it: Changed) -> None:
    it.replace(Asked, {"op": "still-there"}, client="client-2")


def client_was_hit(it: Changed) -> None:
    it.add(Broken(it.last_us(), it.last_us(), "kill", "client-1"))


def went_on_to_hear(it: Changed) -> None:
    """The client's last sign of life is a response, to a call that was sent in time."""
    never_answered(it)
    asked = it.one(Asked, op="still-there")
    it.replace(Asked, {"op": "still-there"}, at_us=asked.at_us - 1)
    it.add(Answered(asked.at_us, "still-there"))


def heard_nothing_more(it: Changed) -> None:
    it.drop(Answered, op="still-there")


PAIRS: list[Neighbours] = [
    ("early", "later", granted_too_early, granted_when_due),
    ("early", "later", begun_too_early, begun_when_due),
    ("early", "later", too_early_after_its_making, granted_when_due),
    ("early", "later", too_early_for_what_it_waits_for, granted_when_due),
    ("early", "later", too_early_for_what_it_waits_for, begun_again),
    ("early", "later", granted_too_early, asked_for_at_once_as_well),
    ("early", "later", granted_too_early, asked_for_sooner_as_well),
    ("early", "later", too_early_though_refused_at_once, nobody_knows_whether_at_once),
    ("early", "later", granted_too_early, made_like_another),
    ("early", "later", granted_too_early, told_to_a_retry),
    ("hung", "first", too_slow, in_time),
    ("hung", "first", never_answered, client_went_on_for_a_while),
    ("hung", "first", never_answered, another_client_went_on),
    ("hung", "first", never_answered, client_was_hit),
    ("hung", "first", went_on_to_hear, heard_nothing_more),
]


@pytest.mark.parametrize(("rule", "job_id", "plant", "excuse"), PAIRS, ids=names_of(PAIRS))
def test_violation_is_told_from_its_neighbour(rule: str, job_id: str, plant: Change, excuse: Change) -> None:
    """The rule finds only this job, and nothing once the excuse is applied."""
    tell_apart(rule, job_id, plant, excuse)


def test_delays_are_not_offered_where_no_clock_is_true() -> None:
    """If clocks were set and the store keeps no times of grants, the rule is not offered."""
    it = Changed(*sound())
    it.run = replace(it.run, faults=[*it.run.faults, "clock-step"])
    it.add(Broken(it.run.begun_us, it.run.begun_us, "clock-step"))
    it.replace(GrantFact, {}, at_ms=0)
    assert it.judge().ruling("early").status is Status.NOT_OFFERED


def test_run_without_delays_and_clocks_is_unknown() -> None:
    """A run without delayed jobs is unknown, and not without clocks."""
    it = Changed(*sound())
    it.replace(GrantFact, {}, at_ms=0)
    it.replace(Began, {}, wall_ms=0)
    it.replace(Asked, {"op": it.op_of("submit", name="later")}, wanted=[JobSpec("later")])
    assert it.judge().ruling("early").status is Status.UNKNOWN


def test_delayed_job_without_attempts_is_no_case() -> None:
    """A delayed job without attempts and grants is no case."""
    it = Changed(*sound())
    it.drop(GrantFact, Began, job_id="later")
    it.replace(JobFact, {"id": "later"}, grants=0, state=DONE)
    ruling = it.judge().ruling("early")
    assert (ruling.status, ruling.cases) == (Status.UNKNOWN, 0)


@pytest.mark.parametrize(("kind", "clock"), [(GrantFact, "at_ms"), (Began, "wall_ms")])
def test_missing_time_is_not_early(kind: type[GrantFact | Began], clock: str) -> None:
    """A missing time is not early, and the other one is compared alone."""
    it = Changed(*sound())
    it.replace(kind, {"job_id": "later"}, **{clock: 0})
    assert it.judge().ruling("early").status is Status.KEPT


def test_earlier_of_two_times_is_when_a_job_is_due() -> None:
    """If the store's due time is before creation plus delay, the earlier one counts, even after two attempts."""
    it = Changed(*sound())
    earlier_ms = due_ms(it) - 150
    it.replace(JobFact, {"id": "later"}, not_before_ms=earlier_ms)
    it.replace(GrantFact, {"job_id": "later"}, at_ms=earlier_ms)
    it.replace(Began, {"job_id": "later"}, wall_ms=earlier_ms)
    begun_again(it)
    assert it.judge().ruling("early").status is Status.KEPT


def test_evidence_shows_the_submit_that_hung() -> None:
    """The evidence shows a submit that hung, although it names no job."""
    it = Changed(*sound())
    op = it.op_of("submit", name="first")
    it.replace(Answered, {"op": op}, at_us=it.one(Asked, op=op).at_us + PATIENCE_US + 1)
    (finding,) = it.judge().ruling("hung").findings
    assert it.one(Asked, op=op) in [line.record for line in finding.evidence]


def test_calls_that_hang_are_told_by_how_they_did() -> None:
    """The finding says whether the call took too long or never got a response."""
    for plant, text in (
        (too_slow, "took 15.0 s"),
        (never_answered, "never got a response, while its client continued"),
    ):
        it = Changed(*sound())
        plant(it)
        (finding,) = it.judge().ruling("hung").findings
        assert text in finding.text


def test_call_without_a_deadline_does_not_hang() -> None:
    """A call without a deadline may take any time."""
    it = Changed(*sound())
    too_slow(it)
    it.replace(Asked, {"op": it.op_of("get", "first")}, deadline_ms=0)
    assert suspects(it, "hung") == []
