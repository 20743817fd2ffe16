"""Violations, each planted in a sound history by changing a few records."""

from collections.abc import Callable

from msgspec.structs import replace

from holdfast_lab.history.records import (
    BY_REQUEST,
    CANCELED,
    DONE,
    FAILED,
    QUEUED,
    RUNNING,
    WORKER_LOST,
    Answered,
    Asked,
    Began,
    Broken,
    DamageFact,
    Ended,
    EndFact,
    GrantFact,
    JobFact,
    JobSnapshot,
    JobSpec,
    Lost,
    Refused,
    TickFact,
)
from tests.unit.lab_check.changes import Changed
from tests.unit.lab_check.sound_history import EVERY_MS, WALL_MS

Plant = Callable[[Changed], None]


def missing_job(it: Changed) -> None:
    it.drop(JobFact, id="first")
    it.drop(GrantFact, EndFact, job_id="first")


def waiting_job(it: Changed) -> None:
    it.replace(JobFact, {"id": "first"}, state=QUEUED)
    it.drop(EndFact, job_id="first")


def missing_retry(it: Changed) -> None:
    it.drop(JobFact, id="again")
    it.drop(GrantFact, EndFact, job_id="again")


def told_the_id_of_another(it: Changed) -> None:
    it.replace(Answered, {"op": it.op_of("submit", name="second")}, ids=["first"])
    it.forget("second")


def begun_and_gone(it: Changed) -> None:
    gone_from_the_store(it, "made")
    answer = it.one(Answered, op=it.op_of("list"))
    it.replace(Answered, {"op": answer.op}, seen=[seen for seen in answer.seen if seen.id != "made"])


def shown_and_gone(it: Changed) -> None:
    gone_from_the_store(it, "made")
    run = it.one(Began, job_id="made").run
    it.drop(Began, job_id="made")
    it.drop(Ended, run=run)


def gone_from_the_store(it: Changed, job_id: str) -> None:
    it.drop(JobFact, id=job_id)
    it.drop(GrantFact, EndFact, job_id=job_id)


def unknown_name(it: Changed) -> None:
    it.replace(JobFact, {"id": "made"}, name="nobody")


def refused_and_there(it: Changed) -> None:
    it.add(JobFact("ghost", "other", DONE, key="key2"), Began(it.last_us(), "g", "ghost", 1, "worker-1"))


def retry_of_nothing(it: Changed) -> None:
    it.add(JobFact("ghost", "first", FAILED, retry_of="first"))


def tick_of_nothing(it: Changed) -> None:
    it.add(JobFact("ghost", "", FAILED, schedule="other"))


def retried_though_refused(it: Changed) -> None:
    it.forget("again-unnamed", "unheard-again", "unheard-named")
    for asked in it.all(Asked, call="retry", job_id="poison"):
        it.drop(Answered, Lost, op=asked.op)
        it.add(Refused(asked.at_us + 1, asked.op, "FAILED_PRECONDITION"))


def tick_of_another_schedule(it: Changed) -> None:
    it.add(JobFact("ghost", "", CANCELED, schedule="hourly"))


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
    it.replace(Asked, {"op": it.op_of("submit", name="once")}, wanted=[JobSpec("once", id="mine")])


def one_retry_too_many(it: Changed) -> None:
    it.add(JobFact("third", "poison", FAILED))


def one_retry_made_two(it: Changed) -> None:
    it.add(*(JobFact(job_id, "poison", FAILED, retry_of="poison") for job_id in ("more", "more-2")))


def two_names_of_a_key(it: Changed) -> None:
    wanted = JobSpec("keyed-2", key="key", digest="one")
    at_us = it.last_us()
    it.add(Asked(at_us, "two", "client-1", "submit", "grpc", [wanted]), Answered(at_us, "two", ids=["keyed-2"]))
    it.add(JobFact("keyed-2", "keyed-2", FAILED))


def two_jobs_of_a_key_and_two_names(it: Changed) -> None:
    it.add(Asked(it.last_us(), "two", "client-1", "submit", "grpc", [JobSpec("keyed-2", key="key", digest="one")]))
    it.add(JobFact("keyed-2", "keyed-2", FAILED, key="key"))


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


def told_of_the_other_content(it: Changed) -> None:
    it.replace(JobFact, {"id": "keyed"}, name="other")


def not_found(it: Changed) -> None:
    op = it.op_of("get", "first")
    at_us = it.one(Answered, op=op).at_us
    it.drop(Answered, op=op)
    it.add(Refused(at_us, op, "NOT_FOUND"))


def not_found_after_a_list(it: Changed) -> None:
    at_us = it.last_us()
    it.add(Asked(at_us + 1, "look", "client-1", "get", "grpc", job_id="made"))
    it.add(Refused(at_us + 2, "look", "NOT_FOUND"))


def another_was_shown(it: Changed) -> None:
    seen = it.one(Answered, op=it.op_of("get", "second")).seen
    it.replace(Answered, {"op": it.op_of("get", "first")}, seen=seen)


def two_ends(it: Changed) -> None:
    it.add(EndFact("first", DONE, 7))


def two_states(it: Changed) -> None:
    it.replace(JobFact, {"id": "poison"}, state=CANCELED)
    it.replace(EndFact, {"job_id": "poison"}, state=CANCELED)
    it.add(Asked(it.last_us(), "late-cancel", "client-1", "cancel", "grpc", job_id="poison"))


def two_results(it: Changed) -> None:
    run = it.one(Began, job_id="first").run
    op = it.op_of("get", "first")
    it.replace(Answered, {"op": op}, seen=[JobSnapshot("first", DONE, "first", 1, f"{run}-2")])
    it.add(Began(it.last_us(), f"{run}-2", "first", 7, "worker-2"))


def no_result_any_more(it: Changed) -> None:
    it.replace(JobFact, {"id": "first"}, run="")


def another_reason(it: Changed) -> None:
    for reason in ("BY_REQUEST", "LOST"):
        shown(it, JobSnapshot("poison", FAILED, "poison", reason=reason))


def another_count(it: Changed) -> None:
    for attempts in (2, 3):
        shown(it, JobSnapshot("poison", FAILED, "poison", attempts))


def shown(it: Changed, seen: JobSnapshot) -> None:
    """Adds another read that shows this."""
    at_us = it.last_us()
    it.add(Asked(at_us + 1, f"look-{at_us}", "client-2", "get", "grpc", job_id=seen.id))
    it.add(Answered(at_us + 2, f"look-{at_us}", seen=[seen]))


def went_back(it: Changed) -> None:
    it.replace(Answered, {"op": it.op_of("result", "first")}, seen=[JobSnapshot("first", QUEUED, "first")])


def went_back_in_the_store(it: Changed) -> None:
    it.replace(JobFact, {"id": "first"}, state=QUEUED)


def done_by_nobody(it: Changed) -> None:
    run = it.one(Began, job_id="second").run
    it.drop(Began, job_id="second")
    it.drop(Ended, run=run)


def canceled_by_nobody(it: Changed) -> None:
    it.drop_calls(lambda asked: asked.call == "cancel" and asked.job_id == "let-go")


def canceled_though_refused(it: Changed) -> None:
    lost = it.one(Lost, op=it.op_of("cancel", "let-go"))
    it.drop(Lost, op=lost.op)
    it.add(Refused(lost.at_us, lost.op, "FAILED_PRECONDITION"))


def failed_by_nobody(it: Changed) -> None:
    it.replace(JobFact, {"id": "poison"}, grants=0)
    it.drop(GrantFact, Began, job_id="poison")


def done_without_a_result(it: Changed) -> None:
    it.replace(JobFact, {"id": "made"}, run="")


def shown_in_a_strange_state(it: Changed) -> None:
    shown(it, JobSnapshot("first", 9, "first"))


def strange_state(it: Changed) -> None:
    it.replace(JobFact, {"id": "made"}, state=9)


def poison_done(it: Changed) -> None:
    it.replace(JobFact, {"id": "poison"}, state=DONE)


def poison_given_up(it: Changed) -> None:
    it.drop(Broken)
    it.forget("twice-more", "killed-once-more")
    it.replace(Asked, {"op": it.op_of("submit", name="poison")}, wanted=[JobSpec("poison", max_attempts=3, fails=3)])


def failed_before_its_last_attempt(it: Changed) -> None:
    it.replace(Asked, {"op": it.op_of("submit", name="poison")}, wanted=[JobSpec("poison", max_attempts=3, fails=1)])
    shown(it, JobSnapshot("poison", FAILED, "poison", reason=BY_REQUEST))


def poison_tried_too_often(it: Changed) -> None:
    it.drop(Broken)
    it.forget("twice-more", "killed-once-more")
    it.replace(Asked, {"op": it.op_of("submit", name="poison")}, wanted=[JobSpec("poison", max_attempts=1, fails=1)])


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
    it.drop_calls(lambda asked: asked.job_id == "killed" and asked.call != "retry")


def stale_result_beside_its_state(it: Changed) -> None:
    first, later = it.all(Began, job_id="killed")[:2]
    stale_result(it)
    it.run = replace(it.run, results_apart=True)
    it.add(Ended(later.at_us + 1, first.run, "done"))


def stale_result_shown(it: Changed) -> None:
    shown(it, JobSnapshot("killed", DONE, "killed", 2, it.one(Began, job_id="killed").run))


def stale_token(it: Changed) -> None:
    it.replace(EndFact, {"job_id": "again"}, token=7)


def stale_token_of_its_result(it: Changed) -> None:
    it.replace(JobFact, {"id": "again"}, token=7)
    it.drop(EndFact, job_id="again")


def result_of_nobody(it: Changed) -> None:
    it.replace(JobFact, {"id": "made"}, run="made-up")


def result_of_another_job(it: Changed) -> None:
    it.replace(JobFact, {"id": "made"}, run=it.one(Began, job_id="second").run)


def token_given_twice(it: Changed) -> None:
    it.add(GrantFact("first", 7, 1_000, "node-1"))


def token_used_twice(it: Changed) -> None:
    it.replace(JobFact, {"id": "first"}, grants=0)
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


def began_after_cancel_under_no_grant(it: Changed) -> None:
    it.add(Began(it.one(Began, job_id="first").at_us, "r", "canceled", 7, "worker-1"))
    it.add(Asked(it.last_us(), "again", "client-1", "cancel", "grpc", job_id="canceled"))
    it.add(Answered(it.last_us(), "again", seen=[JobSnapshot("canceled", CANCELED)]))


def granted_after_cancel(it: Changed) -> None:
    it.add(GrantFact("let-go", 7, 1_000, "node-1"))


def granted_and_begun_after_cancel(it: Changed) -> None:
    granted_after_cancel(it)
    it.add(Began(it.last_us(), "r", "let-go", 7, "worker-1"))


def cancel_accepted_while_it_waits(it: Changed) -> None:
    """The cancel of a waiting job is accepted, the job is seen waiting, and it runs."""
    at_us, waiting = it.one(Began, job_id="second").at_us - 4, [JobSnapshot("second", QUEUED, "second")]
    it.add(Asked(at_us, "let", "client-1", "cancel", "grpc", job_id="second"), Answered(at_us + 1, "let", seen=waiting))
    it.add(
        Asked(at_us + 2, "see", "client-1", "get", "grpc", job_id="second"), Answered(at_us + 3, "see", seen=waiting)
    )


def no_result_after_its_end(it: Changed) -> None:
    at_us = it.last_us()
    it.add(Asked(at_us + 1, "late", "client-1", "result", "grpc", job_id="first"), Answered(at_us + 2, "late"))


def unlucky(it: Changed) -> None:
    """Adds a job that began four times, never ended an attempt, and was shown FAILED before the first fault."""
    at_us, wanted = it.run.begun_us, JobSpec("unlucky", max_attempts=2)
    it.add(Asked(at_us, "ask", "client-1", "submit", "grpc", [wanted]), Answered(at_us + 1, "ask", ids=["unlucky"]))
    it.add(*(Began(at_us + 1 + number, f"u{number}", "unlucky", number, "worker-1") for number in range(1, 5)))
    it.add(*(GrantFact("unlucky", number, 2_000 + number, "node-1") for number in range(1, 5)))
    it.add(Asked(at_us + 10, "look", "client-1", "get", "grpc", job_id="unlucky"))
    it.add(Answered(at_us + 11, "look", seen=[JobSnapshot("unlucky", FAILED, "unlucky", 4)]))
    it.add(JobFact("unlucky", "unlucky", FAILED, store="node-1", number=99, grants=4, reason=WORKER_LOST))
    it.add(EndFact("unlucky", FAILED, 0, 2_005))


def shown_unlucky(it: Changed) -> None:
    """Shows the reason of the failure only to clients."""
    unlucky(it)
    it.replace(JobFact, {"id": "unlucky"}, reason="")
    it.replace(Answered, {"op": "look"}, seen=[JobSnapshot("unlucky", FAILED, "unlucky", 4, reason=WORKER_LOST)])


def unlucky_under_resets(it: Changed) -> None:
    """Adds resets: workers reconnect in time, and keep their leases."""
    unlucky(it)
    it.add(Broken(it.run.begun_us, it.run.begun_us + 20, "resets", "road of the workers, 4 times"))


def unlucky_beside_deaf_clients(it: Changed) -> None:
    """Adds a fault of the clients' connections, which costs no worker its lease."""
    unlucky(it)
    it.add(Broken(it.run.begun_us, it.run.begun_us + 20, "swallow-to-server", "road of the clients, 0.2 s"))


def overtaken(it: Changed) -> None:
    first, second = it.one(GrantFact, job_id="first"), it.one(GrantFact, job_id="second")
    it.replace(GrantFact, {"job_id": "first"}, place=second.place)
    it.replace(GrantFact, {"job_id": "second", "token": second.token}, place=first.place)


def begun_early(it: Changed) -> None:
    due_ms = it.one(JobFact, id="later").not_before_ms
    it.replace(Began, {"job_id": "later"}, wall_ms=due_ms - 105)


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


def tick_between(it: Changed) -> None:
    it.add(TickFact("hourly", WALL_MS + EVERY_MS // 2, "fired", "tick-x"))
    it.add(JobFact("tick-x", "", CANCELED, schedule="hourly"))


def jobs_without_ticks(it: Changed) -> None:
    it.replace(TickFact, {"outcome": "fired"}, job_id="")
    it.add(JobFact("tick-x", "", CANCELED, schedule="hourly"))


def tick_without_job(it: Changed) -> None:
    it.drop(JobFact, id="tick-3")
    it.drop(GrantFact, EndFact, job_id="tick-3")


def tick_made_nothing(it: Changed) -> None:
    it.replace(TickFact, {"job_id": "tick-3"}, job_id="")
    it.forget("tick-3")


def tick_made_up_for_by_hand(it: Changed) -> None:
    tick_unspoken_of(it)
    it.add(TickFact("hourly", WALL_MS + 2 * EVERY_MS, "triggered", "by-hand"))
    it.add(JobFact("by-hand", "", CANCELED, schedule="hourly"))


def last_tick_unspoken_of(it: Changed) -> None:
    it.forget("tick-3")


def ticks_passed_over_once(it: Changed) -> None:
    it.forget("tick-0")


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
    it.replace(Answered, {"op": op}, seen=[JobSnapshot(seen.id, seen.state, seen.name, seen.attempts + 1, seen.run)])


def damage(it: Changed) -> None:
    it.add(DamageFact("replay gives another state", "first"))


def damage_of_no_job(it: Changed) -> None:
    it.add(DamageFact("the counts do not add up"))


def end_of_no_job(it: Changed) -> None:
    it.add(EndFact("ghost", DONE))


def grant_of_no_job(it: Changed) -> None:
    it.add(GrantFact("ghost", 1, 1_000))


def strange_end(it: Changed) -> None:
    it.replace(EndFact, {"job_id": "made"}, state=RUNNING)


def granted_after_its_end(it: Changed) -> None:
    it.replace(EndFact, {"job_id": "poison"}, token=0)
    it.replace(JobFact, {"id": "poison"}, token=0, grants=3)
    it.add(GrantFact("poison", 21, 1_000, "node-1"))


def time_went_back(it: Changed) -> None:
    it.replace(GrantFact, {"job_id": "second"}, at_ms=it.one(GrantFact, job_id="first").at_ms - 1)


#: The rule, the job, and the change.
PLANTS: list[tuple[str, str, Plant]] = [
    ("lost", "first", missing_job),
    ("lost", "first", waiting_job),
    ("lost", "again", missing_retry),
    ("lost", "first", told_the_id_of_another),
    ("lost", "made", begun_and_gone),
    ("lost", "made", shown_and_gone),
    ("unasked", "made", unknown_name),
    ("unasked", "ghost", refused_and_there),
    ("unasked", "ghost", retry_of_nothing),
    ("unasked", "again", retried_though_refused),
    ("unasked", "ghost", tick_of_nothing),
    ("unasked", "ghost", tick_of_another_schedule),
    ("duplicated", "keyed-2", two_jobs_of_a_key),
    ("duplicated", "first", two_ids_of_a_key),
    ("duplicated", "once-more", two_jobs_of_a_doubled_submit),
    ("duplicated", "first-2", two_jobs_of_one_submit),
    ("duplicated", "named", two_jobs_of_an_id),
    ("duplicated", "once", another_id),
    ("duplicated", "third", one_retry_too_many),
    ("duplicated", "more-2", one_retry_made_two),
    ("duplicated", "keyed", two_names_of_a_key),
    ("duplicated", "keyed", two_jobs_of_a_key_and_two_names),
    ("key reused", "keyed", other_content_accepted),
    ("key reused", "keyed", other_content_answered_as_there),
    ("key reused", "keyed", other_content_there),
    ("key reused", "keyed", told_of_the_other_content),
    ("invisible", "first", not_found),
    ("invisible", "made", not_found_after_a_list),
    ("invisible", "first", another_was_shown),
    ("doubly terminal", "first", two_ends),
    ("doubly terminal", "poison", two_states),
    ("doubly terminal", "first", two_results),
    ("doubly terminal", "first", no_result_any_more),
    ("doubly terminal", "poison", another_reason),
    ("doubly terminal", "poison", another_count),
    ("unfinished", "first", went_back),
    ("unfinished", "first", went_back_in_the_store),
    ("illegal", "second", done_by_nobody),
    ("illegal", "let-go", canceled_by_nobody),
    ("illegal", "let-go", canceled_though_refused),
    ("illegal", "poison", failed_by_nobody),
    ("illegal", "made", done_without_a_result),
    ("illegal", "made", strange_state),
    ("illegal", "first", shown_in_a_strange_state),
    ("poison", "poison", poison_done),
    ("poison", "poison", poison_given_up),
    ("poison", "poison", failed_before_its_last_attempt),
    ("poison", "poison", poison_tried_too_often),
    ("drained", "made", not_drained),
    ("drained", "", drained_late),
    ("drained", "", never_drained),
    ("stale accepted", "killed", stale_result),
    ("stale accepted", "killed", stale_result_beside_its_state),
    ("stale accepted", "killed", stale_result_shown),
    ("stale accepted", "again", stale_token),
    ("stale accepted", "again", stale_token_of_its_result),
    ("stale accepted", "made", result_of_nobody),
    ("stale accepted", "made", result_of_another_job),
    ("two leases", "first", token_given_twice),
    ("two leases", "first", token_used_twice),
    ("two leases", "poison", token_never_given),
    ("two leases", "poison", more_runs_than_grants),
    ("ran after cancel", "canceled", began_after_cancel),
    ("ran after cancel", "canceled", began_after_cancel_under_no_grant),
    ("ran after cancel", "let-go", granted_after_cancel),
    ("ran after cancel", "let-go", granted_and_begun_after_cancel),
    ("ran after cancel", "second", cancel_accepted_while_it_waits),
    ("unfinished", "first", no_result_after_its_end),
    ("worker lost", "unlucky", unlucky),
    ("worker lost", "unlucky", shown_unlucky),
    ("worker lost", "unlucky", unlucky_under_resets),
    ("worker lost", "unlucky", unlucky_beside_deaf_clients),
    ("out of order", "first", overtaken),
    ("early", "later", begun_early),
    ("early", "later", granted_early),
    ("hung", "first", slow_answer),
    ("hung", "first", no_answer),
    ("tick doubled", "tick-0b", tick_twice),
    ("tick doubled", "tick-x", tick_between),
    ("tick doubled", "", jobs_without_ticks),
    ("tick missed", "tick-3", tick_without_job),
    ("tick missed", "", tick_made_nothing),
    ("tick missed", "", last_tick_unspoken_of),
    ("tick missed", "", tick_made_up_for_by_hand),
    ("tick missed", "", ticks_passed_over_once),
    ("tick missed", "tick-0", tick_shares_a_job),
    ("tick missed", "", tick_unspoken_of),
    ("interfaces", "first", another_interface),
    ("sound", "first", damage),
    ("sound", "", damage_of_no_job),
    ("sound", "ghost", end_of_no_job),
    ("sound", "ghost", grant_of_no_job),
    ("sound", "made", strange_end),
    ("sound", "first", went_back_in_the_store),
    ("sound", "poison", more_runs_than_grants),
    ("sound", "poison", granted_after_its_end),
    ("sound", "second", time_went_back),
]
