"""Rules about leases: which result counts, and which worker may run a job.

- Tokens of a job only grow, and an ended job is not granted again. So the result of an attempt is stale as soon as an
  attempt with a later token has begun. If results are stored apart from states, a result may be stored before the state
  changes, and the job may be granted again. Then a result is stale only if the later attempt had begun before the
  earlier one ended, that is, before it can have been reported.
- A job ends FAILED by lost workers only if faults took them. A fault that may take leases affects a job if it was
  active at any time between the job's submit and its end, as far as clients know them.
- A worker may begin a job long after it was granted: if it was stopped in between, its lease has expired. So an attempt
  that begins after a cancel is no violation if it may have been granted before.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from math import inf

from holdfast_lab.check.calls import CANCEL, GET, Call
from holdfast_lab.check.history import History
from holdfast_lab.check.story import state_name
from holdfast_lab.check.verdict import NOT_BEGUN, Rule, SuspectedViolation, Tally
from holdfast_lab.history.records import (
    CANCELED,
    DONE,
    FAILED,
    QUEUED,
    TERMINAL,
    WORKER_LOST,
    Began,
    JobFact,
    JobSnapshot,
)


def stale_accepted(history: History, tally: Tally) -> Iterator[SuspectedViolation]:
    """Finds results that counted although a later attempt had begun, or that name a run of another job."""
    for job_id in {**history.jobs, **history.readings, **history.ends}:
        newest = max(_tokens(history, job_id), default=0)
        runs = _runs(history, job_id)
        accepted = [] if history.run.results_apart else _accepted_tokens(history, job_id)
        tally.cases += len(_tokens(history, job_id)) > 1 and (
            bool(accepted) or any(_can_be_judged(history, run) for run in runs)
        )
        unknown = next((run for run in runs if history.began and not _is_of(history.began.get(run), job_id)), None)
        stale = next((run for run in runs if 0 < _token(history, run) < _newest_before(history, run, newest)), None)
        late = next((token for token in accepted if token < newest), None)
        if unknown is not None:
            yield SuspectedViolation(job_id, f"has the result of {unknown}, which is not one of its runs")
        elif stale is not None:
            text = f"has the result of {stale} under token {_token(history, stale)}, although {newest} had been granted"
            yield SuspectedViolation(job_id, text)
        elif late is not None:
            yield SuspectedViolation(job_id, f"ended under token {late}, although {newest} had been granted")


def _can_be_judged(history: History, run: str) -> bool:
    return run in history.began and (run in history.ended or not history.run.results_apart)


def _is_of(began: Began | None, job_id: str) -> bool:
    return began is not None and began.job_id == job_id


def _token(history: History, run: str) -> int:
    return history.began[run].token if run in history.began else 0


def _newest_before(history: History, run: str, newest: int) -> int:
    """Returns the newest token that was granted before the run can have been reported."""
    if not history.run.results_apart:
        return newest
    ended, job_id = history.ended.get(run), history.began[run].job_id
    before = [one.token for one in history.begun.get(job_id, ()) if ended is not None and one.at_us < ended.at_us]
    return max(before, default=0)


def _tokens(history: History, job_id: str) -> set[int]:
    """Returns all tokens under which it was granted or begun."""
    begun, grants = history.begun.get(job_id, ()), history.grants.get(job_id, ())
    return {one.token for one in begun} | {one.token for one in grants}


def _runs(history: History, job_id: str) -> list[str]:
    """Returns the runs that its results name; only a DONE job has any."""
    job = history.jobs.get(job_id)
    runs = [one.seen.run for one in history.readings.get(job_id, ()) if one.seen.state == DONE]
    if job is not None and job.state == DONE:
        runs.insert(0, job.run)
    return list(dict.fromkeys(filter(None, runs)))


def _accepted_tokens(history: History, job_id: str) -> list[int]:
    job = history.jobs.get(job_id)
    tokens = [one.token for one in history.ends.get(job_id, ())]
    return [token for token in (job.token if job is not None else 0, *tokens) if token]


def two_leases(history: History, tally: Tally) -> Iterator[SuspectedViolation]:
    """Finds tokens that do not grow, tokens that were used twice, and more executions than grants."""
    keeps_grants = "grants" in history.run.keeps
    if not keeps_grants:
        tally.note = "grants are not kept: checked by the attempts of workers"
    if not history.began:
        tally.doubt = NOT_BEGUN
    for job_id in {**history.grants, **history.begun}:
        grants, begun = history.grants.get(job_id, []), history.begun.get(job_id, [])
        tally.cases += 1
        given = [one.token for one in grants if one.token]
        used = Counter(one.token for one in begun)
        twice = next((token for token, count in used.items() if count > 1 and token), None)
        if any(later <= earlier for earlier, later in pairwise(given)):
            yield SuspectedViolation(job_id, f"was granted under tokens that do not grow: {', '.join(map(str, given))}")
        elif twice is not None:
            yield SuspectedViolation(job_id, f"was begun {used[twice]} times under token {twice}")
        elif reason := _beyond_grants(history, job_id, begun, set(given), is_complete=keeps_grants):
            yield SuspectedViolation(job_id, reason)


def _beyond_grants(history: History, job_id: str, begun: list[Began], given: set[int], *, is_complete: bool) -> str:
    job = history.jobs.get(job_id)
    if job is None:
        return ""
    if job.grants and len(begun) > job.grants:
        return f"was begun {len(begun)} times, and granted {job.grants} times"
    if not is_complete or job.grants > len(given):
        return ""
    stranger = next((one.token for one in begun if one.token and one.token not in given), None)
    return f"was begun under token {stranger}, which was never granted" if stranger is not None else ""


def ran_after_cancel(history: History, tally: Tally) -> Iterator[SuspectedViolation]:
    """Finds attempts that began, or were granted, after a cancel was answered with CANCELED."""
    if not history.began and not history.grants:
        tally.doubt = NOT_BEGUN
    for job_id in {**history.calls_on, **history.ends}:
        since_us = min(map(_canceled_us, history.calls_named(job_id, CANCEL)), default=inf)
        tally.cases += since_us < inf
        late = [one for one in history.begun.get(job_id, ()) if one.at_us > since_us]
        culprit = next((one for one in late if not _is_excused(history, one, since_us)), None)
        if culprit is not None:
            text = f"was begun {(culprit.at_us - since_us) / 1e6:.3f} s after its cancel was answered with CANCELED"
            yield SuspectedViolation(job_id, text)
        elif history.granted_after_end(job_id, CANCELED):
            yield SuspectedViolation(job_id, "was granted after it had been CANCELED")
        elif _outlived_its_cancel(history, job_id):
            state = state_name(history.jobs[job_id].state)
            yield SuspectedViolation(
                job_id, f"ended {state}, though its cancel had been accepted before its first attempt"
            )


def _outlived_its_cancel(history: History, job_id: str) -> bool:
    """Whether a job that was seen waiting, without an attempt, after its cancel was accepted has ended otherwise."""
    job = history.jobs.get(job_id)
    if job is None or job.state not in {DONE, FAILED}:
        return False
    accepted_us = min(map(_accepted_us, history.calls_named(job_id, CANCEL)), default=inf)
    return any(
        one.call.asked_us > accepted_us and one.call.asked.call == GET and _is_unbegun(one.seen)
        for one in history.readings.get(job_id, ())
    )


def _accepted_us(call: Call) -> float:
    """Returns when the client learned that the cancel of a waiting job was accepted; infinity if it did not."""
    seen = call.answered.seen if call.answered is not None else ()
    return call.heard_us if any(one.state == QUEUED for one in seen) else inf


def _is_unbegun(seen: JobSnapshot) -> bool:
    """Whether a job waits for its first attempt."""
    return seen.state == QUEUED and not seen.attempts


def _canceled_us(call: Call) -> float:
    """Returns when the client learned that the job is CANCELED; infinity if it did not."""
    seen = call.answered.seen if call.answered is not None else ()
    is_canceled = any(one.id == call.asked.job_id and one.state == CANCELED for one in seen)
    return call.heard_us if is_canceled else inf


def _is_excused(history: History, late: Began, since_us: float) -> bool:
    """Whether it may have been granted before the cancel: the store shows it, or a fault delayed it."""
    ends = [one.place for one in history.ends.get(late.job_id, ()) if one.place]
    grant = next((one for one in history.grants.get(late.job_id, ()) if one.token == late.token), None)
    if ends and grant is not None:
        return grant.place < min(ends)
    return history.faults.are_at_work(since_us, since_us)


def worker_lost(history: History, tally: Tally) -> Iterator[SuspectedViolation]:
    """Finds jobs that FAILED by lost workers although no fault can have taken their leases."""
    for job in history.jobs.values():
        if job.state not in TERMINAL or history.faults.may_take_leases(*_life_us(history, job)):
            continue
        tally.cases += 1
        if job.state == FAILED and _is_for_lost_workers(history, job):
            begun = len(history.begun.get(job.id, ()))
            yield SuspectedViolation(
                job.id, f"is FAILED by {WORKER_LOST} after {begun} attempts, and no fault affected it"
            )


def _life_us(history: History, job: JobFact) -> tuple[float, float]:
    """Returns the times of its first submit and of the first reading of its end; if unknown, those of the whole run."""
    asked = [ask.call.asked_us for ask in history.asks_of.get(job.name, ()) if job.name and not job.retry_of]
    if job.id in history.retried:
        asked = [history.retried[job.id].asked_us]
    ended = [one.heard_us for one in history.readings.get(job.id, ()) if one.seen.state in TERMINAL]
    return min(asked, default=history.run.begun_us), min(ended, default=inf)


def _is_for_lost_workers(history: History, job: JobFact) -> bool:
    shown = (one.seen.reason for one in history.readings.get(job.id, ()) if one.seen.state == FAILED)
    return WORKER_LOST in {job.reason, *shown}


RULES = (
    Rule(
        "stale accepted",
        "only the newest attempt's result counts",
        "no job had two attempts and a result",
        stale_accepted,
    ),
    Rule("two leases", "one lease at a time, with a token that grows", "no job was granted or begun", two_leases),
    Rule(
        "ran after cancel", "no job begins after its cancel", "no cancel was answered with CANCELED", ran_after_cancel
    ),
    Rule(
        "worker lost",
        "no job fails by lost workers without a fault that takes leases",
        "every job was near a fault that takes leases",
        worker_lost,
    ),
)
