"""Rules about ends: a job has one, it stays, and the job can have reached it.

- Two readings are compared only if one was answered before the other was sent. A list may lag: it can show an end, but
  never contradict one.
- A cancel with an unknown outcome may have taken effect.
"""

from collections.abc import Iterator
from math import inf

from holdfast_lab.check.calls import CANCEL, LIST, RESULT, Call, JobReading
from holdfast_lab.check.faults import GRACE_US
from holdfast_lab.check.history import History
from holdfast_lab.check.story import STATES, state_name
from holdfast_lab.check.verdict import NOT_BEGUN, NOT_READ, Rule, SuspectedViolation, Tally
from holdfast_lab.history.records import BY_REQUEST, CANCELED, DONE, FAILED, TERMINAL, JobFact, JobSnapshot, JobSpec

#: Calls that cancel jobs without naming them.
_SWEEPING = frozenset({"purge", "drain"})


def doubly_terminal(history: History, tally: Tally) -> Iterator[SuspectedViolation]:
    """Finds jobs with two accepted ends, or with two different ones in responses."""
    for job_id in {**history.jobs, **history.ends, **history.readings}:
        ends = history.ends.get(job_id, [])
        readings = [one.seen for one in history.readings.get(job_id, ()) if one.seen.state in TERMINAL]
        job = history.jobs.get(job_id)
        fact = [job] if job is not None and job.state in TERMINAL else []
        told: list[JobSnapshot | JobFact] = [*readings, *fact]
        tally.cases += len(ends) + len(told) > 1
        states = dict.fromkeys([*(end.state for end in ends), *(one.state for one in told)])
        runs = dict.fromkeys(one.run for one in told if one.run)
        if len(ends) > 1:
            yield SuspectedViolation(job_id, f"has {len(ends)} ends that were accepted")
        elif len(states) > 1:
            yield SuspectedViolation(job_id, f"ended {' and '.join(map(state_name, states))}")
        elif len(runs) > 1:
            yield SuspectedViolation(job_id, f"has the results of {len(runs)} runs: {', '.join(runs)}")
        elif runs and history.keeps_results and any(not one.run for one in fact):
            yield SuspectedViolation(
                job_id, f"was shown with the result of {next(iter(runs))}, and has none in the store"
            )
        elif difference := _told_otherwise(readings):
            yield SuspectedViolation(job_id, difference)


def _told_otherwise(readings: list[JobSnapshot]) -> str:
    """Returns an attribute that was shown with two values; missing values are not compared."""
    for name in ("attempts", "reason"):
        values = dict.fromkeys(str(value) for one in readings if (value := getattr(one, name)))
        if len(values) > 1:
            return f"has ended, and is shown with the {name} {' and '.join(values)}"
    return ""


def unfinished(history: History, tally: Tally) -> Iterator[SuspectedViolation]:
    """Finds jobs that were seen in a terminal state, and later in another one."""
    for job_id, readings in history.readings.items():
        ended = [one for one in readings if one.seen.state in TERMINAL]
        if not ended:
            continue
        first = min(ended, key=lambda one: one.heard_us)
        later = [one for one in readings if one.call.asked_us > first.heard_us and one.call.asked.call != LIST]
        job = history.jobs.get(job_id)
        tally.cases += bool(later) or job is not None
        back = next((one for one in later if one.seen.state not in TERMINAL), None)
        empty = next((call for call in history.calls_named(job_id, RESULT) if _is_empty(call, first.heard_us)), None)
        if back is not None:
            yield SuspectedViolation(job_id, _went_back(first, state_name(back.seen.state)))
        elif empty is not None:
            yield SuspectedViolation(job_id, _went_back(first, "without a result"), ops=(empty.asked.op,))
        elif job is not None and job.state not in TERMINAL:
            yield SuspectedViolation(job_id, _went_back(first, f"{state_name(job.state)} in the store"))


def _is_empty(call: Call, since_us: float) -> bool:
    """Whether a call for the result that began after this instant was answered without one."""
    return call.asked_us > since_us and call.answered is not None and not call.answered.seen


def _went_back(first: JobReading, then: str) -> str:
    return f"was seen {state_name(first.seen.state)}, and later {then}"


def illegal(history: History, tally: Tally) -> Iterator[SuspectedViolation]:
    """Finds jobs in a state that does not exist, or that they cannot have reached."""
    if not history.began:
        tally.doubt = NOT_BEGUN
    for job in history.jobs.values():
        tally.cases += job.state in TERMINAL
        reason = _IMPOSSIBLE[job.state](history, job) if job.state in _IMPOSSIBLE else ""
        if job.state not in STATES:
            yield SuspectedViolation(job.id, f"is in a state that does not exist: {job.state}")
        elif reason:
            yield SuspectedViolation(job.id, reason)
    for job_id, readings in history.readings.items():
        if any(one.seen.state not in STATES for one in readings):
            yield SuspectedViolation(job_id, "was shown in a state that does not exist")


def _undone(history: History, job: JobFact) -> str:
    if not history.began:
        return ""
    begun = history.begun.get(job.id)
    if not begun:
        return "is DONE, but no attempt of it began"
    if _shown_us(history, job) < begun[0].at_us:
        return "was shown DONE before its first attempt began"
    return "is DONE and has no result" if not job.run and history.keeps_results else ""


def _shown_us(history: History, job: JobFact) -> float:
    """Returns when it was first seen in its final state; infinity if it never was."""
    return min((one.heard_us for one in history.readings.get(job.id, ()) if one.seen.state == job.state), default=inf)


def _unfailed(history: History, job: JobFact) -> str:
    is_granted = job.grants or history.grants.get(job.id) or history.begun.get(job.id)
    return "is FAILED and was never granted" if "grants" in history.run.keeps and not is_granted else ""


def _uncanceled(history: History, job: JobFact) -> str:
    """Returns why a job cannot be CANCELED; schedules may cancel their last job, and sweeping calls name no job."""
    shown_us = _shown_us(history, job)
    calls = [call for call in history.calls_named(job.id, CANCEL) if call.asked_us <= shown_us]
    if job.schedule or history.kinds & _SWEEPING:
        return ""
    if not calls:
        return "is CANCELED, but no cancel had been requested"
    return "" if any(map(history.faults.may_be_done, calls)) else "is CANCELED although every cancel of it was refused"


_IMPOSSIBLE = {DONE: _undone, FAILED: _unfailed, CANCELED: _uncanceled}


def poison(history: History, tally: Tally) -> Iterator[SuspectedViolation]:
    """Finds jobs that can only fail but did not after their attempts, or that can succeed and failed by request."""
    for name, asks in history.asks_of.items():
        wanted = asks[0].wanted
        for job in history.named.get(name, ()):
            if wanted.fails < wanted.max_attempts:
                if job.state == FAILED and _is_by_request(history, job):
                    text = f"is FAILED by request, which was for {wanted.fails} of {wanted.max_attempts} attempts"
                    yield SuspectedViolation(job.id, text)
                continue
            tally.cases += job.state in {DONE, FAILED}
            if job.state == DONE:
                yield SuspectedViolation(
                    job.id, f"can only fail ({wanted.fails} times of {wanted.max_attempts}), and is DONE"
                )
            elif job.state == FAILED and _is_miscounted(history, job, wanted):
                tries = len(history.begun.get(job.id, ()))
                yield SuspectedViolation(
                    job.id, f"is FAILED after {tries} of {wanted.max_attempts} attempts, and no fault was active"
                )


def _is_by_request(history: History, job: JobFact) -> bool:
    """Whether it was shown to have failed on purpose; lost workers are another reason."""
    return any(one.seen.state == FAILED and one.seen.reason == BY_REQUEST for one in history.readings.get(job.id, ()))


def _is_miscounted(history: History, job: JobFact, wanted: JobSpec) -> bool:
    """Whether the number of attempts is wrong, and no fault can have hidden an attempt or the report of one."""
    begun = history.begun.get(job.id, [])
    grants = max(job.grants, len(history.grants.get(job.id, ())))
    if not begun or len(begun) == wanted.max_attempts or grants > len(begun):
        return False
    ended = [history.ended.get(one.run) for one in begun]
    times = [one.at_us for one in ended if one is not None and one.outcome == "failed"]
    return len(times) == len(begun) and not history.faults.are_at_work(begun[0].at_us, max(times) + GRACE_US)


def drained(history: History, tally: Tally) -> Iterator[SuspectedViolation]:
    """Finds jobs that have not ended, or a drain that exceeded the bound after the last fault."""
    run = history.run
    if not run.faults_ended_us:
        tally.doubt = "the end of the faults is not known"
        return
    if not run.drain_bound_s:
        tally.doubt = "the run has no bound for the drain"
    tally.cases = len(history.jobs)
    waiting = [job for job in history.jobs.values() if job.state not in TERMINAL]
    for job in waiting:
        if not (run.drained_us and job.id in history.acknowledged_us):  # the rule "lost" reports that one
            yield SuspectedViolation(job.id, f"is {state_name(job.state)} at the end of the run")
    took_s = (run.drained_us - run.faults_ended_us) / 1e6
    if not run.drained_us and not waiting:
        yield SuspectedViolation("", f"not all jobs had ended {run.drain_bound_s:g} s after the last fault")
    elif run.drained_us and run.drain_bound_s and took_s > run.drain_bound_s:
        yield SuspectedViolation(
            "", f"it took {took_s:.1f} s until all jobs had ended; the bound is {run.drain_bound_s:g} s"
        )


RULES = (
    Rule("doubly terminal", "one end, shown the same everywhere", "no end was shown twice", doubly_terminal),
    Rule("unfinished", "an end stays", "no job was read after its end", unfinished),
    Rule("illegal", "only states that a job can reach", "no job ended", illegal),
    Rule("poison", "a job fails after its attempts, and not before", "no job that can only fail has ended", poison),
    Rule("drained", "all jobs end within the bound", NOT_READ, drained),
)
