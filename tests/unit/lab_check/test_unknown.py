"""Untested rules are unknown, missing features are not offered, and unknown outcomes are no violations."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast_lab.check.judge import RULES
from holdfast_lab.check.verdict import Status
from holdfast_lab.history.records import (
    CANCELED,
    DONE,
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
    Lost,
    Record,
    Refused,
    Run,
    TickFact,
)
from tests.unit.lab_check.changes import Changed
from tests.unit.lab_check.plants import failed_by_nobody, time_went_back
from tests.unit.lab_check.sound_history import WALL_MS, sound

Strip = Callable[[Changed], None]


def no_acknowledgement(it: Changed) -> None:
    for asked in [one for one in it.records if isinstance(one, Asked) and one.call in {"submit", "retry"}]:
        lose(it, asked.op)


def no_jobs(it: Changed) -> None:
    it.drop(JobFact, GrantFact, EndFact)


def no_repeats(it: Changed) -> None:
    it.drop(Broken, kind="duplicate")
    it.forget("twice-more", "killed-once-more", "plain-again")
    names: set[str] = set()

    def is_repeated(asked: Asked) -> bool:
        again = any(one.name in names for one in asked.wanted)
        names.update(one.name for one in asked.wanted)
        return again

    it.drop_calls(is_repeated)


def no_other_content(it: Changed) -> None:
    it.drop_calls(lambda asked: any(one.name == "other" for one in asked.wanted))


def no_reads(it: Changed) -> None:
    it.drop_calls(lambda asked: asked.call in {"get", "result", "list", "retry"} or asked.job_id == "canceled")
    it.drop(JobFact, GrantFact, EndFact)


def no_poison(it: Changed) -> None:
    it.replace(Asked, {"op": it.op_of("submit", name="poison")}, wanted=[JobSpec("poison", max_attempts=2, fails=1)])


def no_end_of_faults(it: Changed) -> None:
    it.run = replace(it.run, faults_ended_us=0)


def no_second_attempts(it: Changed) -> None:
    several = {one.job_id for one in it.records if isinstance(one, GrantFact) and one.token > 7}
    it.forget(*several)


def no_grants(it: Changed) -> None:
    it.drop(GrantFact, Began)


def no_cancels(it: Changed) -> None:
    seen = it.one(Answered, op=it.op_of("cancel", "canceled")).seen[0]
    it.replace(Answered, {"op": it.op_of("cancel", "canceled")}, seen=[replace(seen, state=RUNNING)])


def no_delays(it: Changed) -> None:
    it.replace(Asked, {"op": it.op_of("submit", name="later")}, wanted=[JobSpec("later")])


def no_deadlines(it: Changed) -> None:
    it.replace(Asked, {}, deadline_ms=0)


def no_fired_ticks(it: Changed) -> None:
    it.replace(TickFact, {"outcome": "fired"}, outcome="missed")


def no_http(it: Changed) -> None:
    it.replace(Asked, {}, via="grpc")


def no_cancel_that_succeeded(it: Changed) -> None:
    lose(it, it.op_of("cancel", "canceled"))


def no_kill(it: Changed) -> None:
    it.drop(Broken, kind="kill")


def no_job_without_faults(it: Changed) -> None:
    it.replace(Broken, {"kind": "kill"}, at_us=it.run.begun_us)


STRIPS: dict[str, Strip] = {
    "lost": no_acknowledgement,
    "unasked": no_jobs,
    "duplicated": no_repeats,
    "key reused": no_other_content,
    "invisible": no_reads,
    "doubly terminal": no_reads,
    "unfinished": no_reads,
    "illegal": no_jobs,
    "poison": no_poison,
    "drained": no_end_of_faults,
    "stale accepted": no_second_attempts,
    "two leases": no_grants,
    "ran after cancel": no_cancels,
    "worker lost": no_job_without_faults,
    "out of order": no_grants,
    "early": no_delays,
    "hung": no_deadlines,
    "tick doubled": no_fired_ticks,
    "tick missed": no_fired_ticks,
    "interfaces": no_http,
    "sound": no_jobs,
    "calls": no_cancel_that_succeeded,
    "faults": no_kill,
}


def no_bound(it: Changed) -> None:
    it.run = replace(it.run, drain_bound_s=0.0)


def no_attempts(it: Changed) -> None:
    it.drop(Began, Ended)


def no_attempts_and_grants(it: Changed) -> None:
    it.drop(Began, Ended, GrantFact)


def no_answers_and_no_store(it: Changed) -> None:
    no_acknowledgement(it)
    no_jobs(it)


def no_room_for_other_content(it: Changed) -> None:
    it.replace(Refused, {"op": it.op_of("submit", name="other")}, code="RESOURCE_EXHAUSTED")


def no_content_accepted(it: Changed) -> None:
    for asked in it.all(Asked, call="submit"):
        if asked.wanted[0].name == "keyed":
            lose(it, asked.op)


def no_ends_of_attempts(it: Changed) -> None:
    it.drop(Ended)
    it.run = replace(it.run, results_apart=True)


def no_beginnings(it: Changed) -> None:
    it.drop(Began)
    it.run = replace(it.run, results_apart=True)


def no_results(it: Changed) -> None:
    it.replace(JobFact, {}, run="", token=0)
    it.replace(EndFact, {}, token=0)
    it.drop_calls(lambda asked: asked.call in {"get", "result", "list"})


def no_schedule_seen_to_its_end(it: Changed) -> None:
    it.run = replace(it.run, schedules=[], calls=[*it.run.calls, "schedule"])


def no_calls_to_be_made(it: Changed) -> None:
    it.run = replace(it.run, calls=[])


#: Rules with cases that prove nothing.
HOLLOW: list[tuple[str, Strip]] = [
    ("lost", no_jobs),
    ("duplicated", no_answers_and_no_store),
    ("key reused", no_room_for_other_content),
    ("key reused", no_content_accepted),
    ("illegal", no_attempts),
    ("drained", no_bound),
    ("stale accepted", no_ends_of_attempts),
    ("stale accepted", no_beginnings),
    ("stale accepted", no_results),
    ("two leases", no_attempts),
    ("ran after cancel", no_attempts_and_grants),
    ("tick doubled", no_schedule_seen_to_its_end),
    ("tick missed", no_schedule_seen_to_its_end),
    ("calls", no_calls_to_be_made),
]


def lose(it: Changed, op: str) -> None:
    """Makes the outcome of a call unknown."""
    it.records = [
        Lost(one.at_us, one.op, "DEADLINE_EXCEEDED") if isinstance(one, Answered | Refused) and one.op == op else one
        for one in it.records
    ]


def test_every_rule_has_a_run_that_never_exercises_it() -> None:
    """Every rule has a history in which it has no cases."""
    assert STRIPS.keys() == {rule.name for rule in RULES}


@pytest.mark.parametrize(("rule", "strip"), [*STRIPS.items(), *HOLLOW])
def test_rule_without_cases_is_unknown(rule: str, strip: Strip) -> None:
    """A rule without cases is unknown, and the reason is given."""
    it = Changed(*sound())
    strip(it)
    verdict = it.judge()
    assert verdict.ruling(rule).status is Status.UNKNOWN
    assert verdict.ruling(rule).reason
    assert verdict.ruling(rule) in verdict.unknown
    assert not verdict.is_kept


def test_empty_history_proves_nothing() -> None:
    """In a history without records every rule is unknown."""
    run, _ = sound()
    verdict = Changed(run, []).judge()
    assert {ruling.status for ruling in verdict.rulings} == {Status.UNKNOWN}


def test_rules_of_missing_capabilities_are_not_offered() -> None:
    """Without order, ticks, schedules and HTTP these rules are not offered, and all others are kept."""
    it = Changed(*sound())
    it.run = replace(it.run, keeps=[], schedules=[], interfaces=["grpc"])
    it.drop(GrantFact, TickFact)
    it.replace(JobFact, {}, grants=0, run="")
    it.forget("tick-0", "tick-3")
    verdict = it.judge()
    missing = {ruling.rule for ruling in verdict.rulings if ruling.status is Status.NOT_OFFERED}
    assert missing == {"out of order", "tick doubled", "tick missed", "interfaces"}
    assert "grants are not kept" in verdict.ruling("two leases").reason
    assert verdict.is_kept


def answer_to_nothing(it: Changed) -> None:
    it.drop(Asked, call="list")
    it.run = replace(it.run, calls=["submit"])


def call_twice(it: Changed) -> None:
    it.add(replace(it.one(Asked, call="get"), client="client-2"))


def answer_twice(it: Changed) -> None:
    it.add(it.one(Answered, op=it.op_of("get", "first")))


def answer_before_its_call(it: Changed) -> None:
    it.replace(Answered, {"op": it.op_of("get", "first")}, at_us=it.one(Asked, job_id="first").at_us - 1)


def end_without_a_beginning(it: Changed) -> None:
    it.add(Ended(it.last_us(), "nobody", "done"))


def beginning_twice(it: Changed) -> None:
    it.add(it.one(Began, job_id="first"))


def end_twice(it: Changed) -> None:
    it.add(it.one(Ended, outcome="done"))


def end_before_its_beginning(it: Changed) -> None:
    began = it.one(Began, job_id="first")
    it.replace(Ended, {"run": began.run}, at_us=began.at_us - 1)


def run_of_two_jobs(it: Changed) -> None:
    """One run for attempts of two jobs; the store counts no grants of one of them."""
    first, second = it.all(Began, job_id="poison")
    it.drop(Began, run=second.run)
    it.drop(GrantFact, job_id="poison")
    it.replace(JobFact, {"id": "poison"}, grants=0)
    for one in (first, second):
        it.drop(Ended, run=one.run)
    it.replace(Began, {"run": first.run}, run=it.one(Began, job_id="first").run, token=0)


GAPS = [
    answer_to_nothing,
    call_twice,
    answer_twice,
    answer_before_its_call,
    end_without_a_beginning,
    beginning_twice,
    end_twice,
    end_before_its_beginning,
    run_of_two_jobs,
]


@pytest.mark.parametrize("gap", GAPS)
def test_records_that_are_not_whole_are_a_doubt(gap: Strip) -> None:
    """A history with missing or repeated records is unknown, and not broken."""
    it = Changed(*sound())
    gap(it)
    verdict = it.judge()
    assert (verdict.broken, verdict.status) == ([], Status.UNKNOWN)
    assert "the records are incomplete" in verdict.ruling("calls").reason


ANSWERED_OPS = sorted({one.op for one in sound()[1] if isinstance(one, Answered | Refused)})


@settings(max_examples=150)
@given(
    lost=st.sets(st.sampled_from(ANSWERED_OPS)),
    silent=st.sets(st.sampled_from(ANSWERED_OPS)),
    has_ends=st.booleans(),
    seed=st.integers(0, 1_000),
)
def test_unknown_outcomes_break_nothing(lost: set[str], silent: set[str], has_ends: bool, seed: int) -> None:  # noqa: FBT001
    """Whichever responses are lost or missing, and in whatever order files are read, there is no finding."""
    run, records = sound()
    kept = [one for one in records if has_ends or not isinstance(one, Ended)]
    changed = [outcome for one in kept if (outcome := unheard(one, lost, silent)) is not None]
    random.Random(seed).shuffle(changed)
    verdict = Changed(run, changed).judge()
    assert [(finding.rule, finding.job_id, finding.text) for finding in verdict.findings] == []


def unheard(one: Record, lost: set[str], silent: set[str]) -> Record | None:
    if isinstance(one, Answered | Refused | Lost):
        if one.op in silent:
            return None
        if one.op in lost:
            return Lost(one.at_us, one.op, "UNAVAILABLE")
    return one


# -- conclusions that must not be drawn


def late_attempt(it: Changed) -> None:
    """An attempt of the canceled job begins after its cancel, and the store does not show when it was granted."""
    it.drop(EndFact, job_id="canceled")
    it.add(GrantFact("canceled", 7, 1_000, "node-1"))
    it.add(Began(it.one(Began, job_id="first").at_us, "r", "canceled", 7, "worker-1"))


def test_attempt_that_a_fault_may_have_held_up_is_no_breach_of_a_cancel() -> None:
    """A worker that was stopped with a lease may begin the job later, even after its cancel."""
    it = Changed(*sound())
    late_attempt(it)
    canceled_us = it.one(Answered, op=it.op_of("cancel", "canceled")).at_us
    it.add(Broken(canceled_us - 1_000, canceled_us - 500, "pause", "worker-1"))
    assert it.judge().ruling("ran after cancel").status is Status.KEPT


def test_attempt_that_was_granted_before_the_cancel_is_no_breach_of_it() -> None:
    """An attempt that begins after a cancel is no violation if its grant came before the end."""
    it = Changed(*sound())
    late_attempt(it)
    it.add(EndFact("canceled", CANCELED, place=1_001))
    assert it.judge().ruling("ran after cancel").status is Status.KEPT


def test_grants_alone_show_whether_anything_ran_after_a_cancel() -> None:
    """Without records of workers, the grants of the store are enough."""
    it = Changed(*sound())
    no_attempts(it)
    assert it.judge().ruling("ran after cancel").status is Status.KEPT


def swapped(it: Changed) -> None:
    """Grants the second job before the first."""
    first, second = it.one(GrantFact, job_id="first"), it.one(GrantFact, job_id="second")
    it.replace(GrantFact, {"job_id": "first"}, place=second.place)
    it.replace(GrantFact, {"job_id": "second", "token": second.token}, place=first.place)


def overlapping(it: Changed) -> None:
    asked = it.one(Asked, op=it.op_of("submit", name="second"))
    it.replace(Answered, {"op": it.op_of("submit", name="first")}, at_us=asked.at_us + 1)


def unacknowledged(it: Changed) -> None:
    lose(it, it.op_of("submit", name="first"))


def delayed(it: Changed) -> None:
    it.replace(JobFact, {"id": "first"}, not_before_ms=it.one(JobFact, id="first").created_ms + 1)


def to_be_canceled(it: Changed) -> None:
    it.add(Asked(it.one(Began, job_id="second").at_us - 1, "try", "client-2", "cancel", "grpc", job_id="first"))


def of_another_lane(it: Changed) -> None:
    it.replace(JobFact, {"id": "first"}, priority=1)


def of_another_store(it: Changed) -> None:
    it.replace(JobFact, {"id": "first"}, store="node-2")


@pytest.mark.parametrize(
    "excuse", [overlapping, unacknowledged, delayed, to_be_canceled, of_another_lane, of_another_store]
)
def test_order_is_judged_only_where_it_is_certain(excuse: Strip) -> None:
    """A job that was not certainly first, due and waiting in the same lane was not overtaken."""
    it = Changed(*sound())
    swapped(it)
    excuse(it)
    assert it.judge().ruling("out of order").status is Status.KEPT


def test_wall_clocks_count_for_nothing_once_one_was_stepped() -> None:
    """After a clock fault only the store's own times are compared, because jobs keep wrong times."""
    it = Changed(*sound())
    due_ms = it.one(JobFact, id="later").not_before_ms
    it.replace(Began, {"job_id": "later"}, wall_ms=due_ms - 3_600_000)
    it.run = replace(it.run, faults=[*it.run.faults, "clock-step"])
    it.add(Broken(it.run.begun_us, it.run.begun_us, "clock-step"))
    assert it.judge().ruling("early").status is Status.KEPT


def test_clock_that_the_machine_corrected_meanwhile_is_no_alarm() -> None:
    """A store whose time never goes back may be some milliseconds ahead of its workers after a clock correction."""
    it = Changed(*sound())
    it.replace(Began, {"job_id": "later"}, wall_ms=it.one(JobFact, id="later").not_before_ms - 5)
    assert it.judge().ruling("early").status is Status.KEPT


def test_backoff_of_a_later_attempt_is_not_taken_for_a_delay() -> None:
    """The back-off of a later attempt is not the delay of the first one."""
    it = Changed(*sound())
    it.replace(JobFact, {"id": "later"}, not_before_ms=it.one(JobFact, id="later").not_before_ms + 60_000)
    assert it.judge().ruling("early").status is Status.KEPT


def test_poison_that_a_fault_cost_its_attempts_did_not_give_up() -> None:
    """Losses without a record may have used up the attempts of a poison job."""
    it = Changed(*sound())
    it.replace(Asked, {"op": it.op_of("submit", name="poison")}, wanted=[JobSpec("poison", max_attempts=3, fails=3)])
    assert it.judge().ruling("poison").status is Status.KEPT


def test_client_that_was_broken_itself_does_not_hang() -> None:
    """A client that was killed during a call gets no response, which is no violation."""
    it = Changed(*sound())
    it.drop(Answered, op=it.op_of("get", "first"))
    it.add(Asked(it.last_us() + 16_000_000, "still-there", "client-1", "list", "grpc"))
    it.add(Broken(it.last_us(), it.last_us(), "kill", "client-1"))
    assert it.judge().ruling("hung").status is Status.KEPT


def test_list_that_lags_takes_no_end_back() -> None:
    """A list may show an older state."""
    it = Changed(*sound())
    answer = it.one(Answered, op=it.op_of("list"))
    seen = [replace(one, state=RUNNING, run="") for one in answer.seen]
    it.replace(Answered, {"op": answer.op}, seen=seen)
    assert it.judge().broken == []


def test_refused_request_that_was_duplicated_may_have_succeeded() -> None:
    """If connections are duplicated, a refused request may have succeeded once."""
    it = Changed(*sound())
    lost = it.one(Lost, op=it.op_of("cancel", "let-go"))
    it.drop(Lost, op=lost.op)
    it.add(Refused(lost.at_us, lost.op, "FAILED_PRECONDITION"), Broken(it.run.begun_us, lost.at_us, "duplicate"))
    assert it.judge().broken == []


def test_job_that_was_shown_waiting_may_be_taken_back() -> None:
    """A job of an unknown submit may be undone as long as it only waits."""
    it = Changed(*sound())
    answer = it.one(Answered, op=it.op_of("list"))
    it.replace(Answered, {"op": answer.op}, seen=[*answer.seen, JobSnapshot("undone", QUEUED, "not-made")])
    assert it.judge().is_kept


def test_one_name_under_two_identities_may_be_two_jobs() -> None:
    """Submits of one name under a key and under an id may make two jobs."""
    it = Changed(*sound())
    it.add(Asked(it.last_us(), "anew", "client-1", "submit", "grpc", [JobSpec("named", key="anew")]))
    it.add(replace(it.one(JobFact, id="let-go"), id="anew", name="named", key="anew", schedule="", number=99))
    it.add(Asked(it.last_us(), "stop", "client-1", "cancel", "grpc", job_id="anew"))
    assert it.judge().broken == []


def test_key_counts_before_an_id() -> None:
    """A submit with a used key gets the existing id, even if it names another id."""
    it = Changed(*sound())
    wanted = JobSpec("keyed", id="mine", key="key", digest="one")
    for op in {ask.op for ask in it.all(Asked, call="submit") if any(one.name == "keyed" for one in ask.wanted)}:
        it.replace(Asked, {"op": op}, wanted=[wanted])
    assert it.judge().is_kept


def test_failed_attempt_returns_no_run() -> None:
    """Only a successful attempt returns its run."""
    it = Changed(*sound())
    it.replace(JobFact, {"id": "poison"}, run="what it said last")
    assert it.judge().is_kept


def test_store_that_counts_more_grants_than_it_tells_may_have_given_any_token() -> None:
    """If the store counts more grants than it has, a missing one may have any token."""
    it = Changed(*sound())
    it.drop(GrantFact, job_id="poison", token=7)
    assert it.judge().broken == []


def test_ticks_are_not_offered_where_the_store_keeps_none() -> None:
    """Ticks are not offered if the store does not keep them."""
    it = Changed(*sound())
    it.run = replace(it.run, keeps=["grants", "order"])
    it.drop(TickFact)
    verdict = it.judge()
    assert {verdict.ruling(rule).status for rule in ("tick doubled", "tick missed")} == {Status.NOT_OFFERED}


def test_jobs_made_by_hand_and_by_schedules_that_are_not_judged_are_no_ticks_too_many() -> None:
    """Only a schedule that was seen from its first to its last tick has expected ticks."""
    it = Changed(*sound())
    it.replace(TickFact, {"outcome": "fired"}, job_id="")
    it.add(TickFact("hourly", WALL_MS, "triggered", "by-hand"), TickFact("other", WALL_MS + 1, "fired", "beside"))
    it.add(JobFact("by-hand", "", CANCELED, schedule="hourly"), JobFact("beside", "", CANCELED, schedule="other"))
    it.add(TickFact("hourly", WALL_MS - 1, "fired"))
    assert it.judge().broken == []


def test_one_submit_or_retry_that_may_have_happened_explains_the_job() -> None:
    """Another refused submit or retry does not matter."""
    it = Changed(*sound())
    at_us = it.last_us()
    it.add(Asked(at_us, "full", "client-1", "submit", "grpc", [JobSpec("made")]))
    it.add(Asked(at_us, "late", "client-2", "retry", "grpc", job_id="poison"))
    it.add(*(Refused(at_us + 1, op, "RESOURCE_EXHAUSTED") for op in ("full", "late")))
    it.drop(Broken, kind="duplicate")
    it.forget("twice-more", "killed-once-more")
    assert it.judge().broken == []


def test_grants_that_are_not_kept_were_not_missing() -> None:
    """Without grants in the store and records of workers, a failed job needs no grant."""
    it = Changed(*sound())
    failed_by_nobody(it)
    it.run = replace(it.run, keeps=["ticks"])
    assert it.judge().ruling("illegal").status is Status.KEPT


def test_one_cancel_that_may_have_happened_explains_the_end() -> None:
    """Another refused cancel does not matter."""
    it = Changed(*sound())
    at_us = it.one(Lost, op=it.op_of("cancel", "let-go")).at_us
    it.add(Asked(at_us, "late", "client-2", "cancel", "grpc", job_id="let-go"))
    it.add(Refused(at_us + 1, "late", "FAILED_PRECONDITION"))
    assert it.judge().is_kept


def test_time_may_go_back_where_there_is_no_log() -> None:
    """Without an order of grants, their times may go back."""
    it = Changed(*sound())
    time_went_back(it)
    it.run = replace(it.run, keeps=["grants", "ticks"])
    assert it.judge().broken == []


def test_run_without_faults_needs_none() -> None:
    """If no fault was enabled, none has to be fired."""
    done = JobFact("j", "n", DONE)
    verdict = Changed(Run("made-up", 1, calls=["submit"]), [done]).judge()
    assert verdict.ruling("faults").status is Status.NOT_OFFERED
