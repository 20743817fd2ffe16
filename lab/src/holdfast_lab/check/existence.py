"""Rules about which jobs exist: none is lost, unexplained or invisible.

- An unknown submit may or may not have created its job. So such a job is never unexplained, and it is lost only if it
  was shown in a later state than QUEUED or if an attempt began.
- A retry creates another job of the same name.
"""

from collections.abc import Iterator

from holdfast_lab.check.calls import NOT_FOUND, RETRY, Call, JobSubmission
from holdfast_lab.check.history import History
from holdfast_lab.check.story import state_name
from holdfast_lab.check.verdict import NOT_READ, Rule, SuspectedViolation, Tally
from holdfast_lab.history.records import TERMINAL, JobFact


def lost(history: History, tally: Tally) -> Iterator[SuspectedViolation]:
    """Finds acknowledged, shown or begun jobs that are missing, are other jobs, or have not ended after the drain."""
    if not history.jobs:
        tally.doubt = NOT_READ
        return
    tally.cases = len(history.acknowledged_us)
    if not history.run.drained_us:
        tally.note = "every acknowledged job exists; the run ended before all jobs had ended"
    for job_id in history.certain_us:
        job, is_acknowledged = history.jobs.get(job_id), job_id in history.acknowledged_us
        if job is None:
            yield SuspectedViolation(
                job_id, f"was {'acknowledged' if is_acknowledged else 'shown or begun'} but is missing"
            )
        elif history.run.drained_us and is_acknowledged and job.state not in TERMINAL:
            yield SuspectedViolation(job_id, f"was acknowledged but is still {state_name(job.state)} after the drain")
    for job_id, asks in history.told.items():
        job = history.jobs.get(job_id)
        mistaken = [ask.wanted.name for ask in asks if job is not None and _is_another(ask, job)]
        if mistaken:
            yield SuspectedViolation(
                job_id, f"was returned for {mistaken[0]}, but is another job", names=tuple(mistaken)
            )
        elif len(asks) > 1 and not all(any(ask.identity) for ask in asks):
            yield SuspectedViolation(
                job_id, f"was returned for {len(asks)} submits, but they are not all for the same job"
            )
    yield from _mistaken_retries(history)


def _is_another(ask: JobSubmission, job: JobFact) -> bool:
    """Whether this is not the job of the submit; other content under its key is covered by another rule."""
    return ask.wanted.name != job.name and not (job.key and ask.wanted.key == job.key)


def _mistaken_retries(history: History) -> Iterator[SuspectedViolation]:
    """Finds retries whose response has a job of another name."""
    for call in history.calls.values():
        if call.asked.call != RETRY or call.answered is None:
            continue
        old = call.asked.job_id
        name = history.name_of(old)
        for job_id in call.answered.ids:
            if name and job_id in history.jobs and history.jobs[job_id].name != name:
                text = f"was returned for a retry of {old}, but is another job"
                yield SuspectedViolation(job_id, text, also=(old,), ops=(call.asked.op,))


def unasked(history: History, tally: Tally) -> Iterator[SuspectedViolation]:
    """Finds jobs that no submit, retry or tick explains."""
    schedules = {one.name for one in history.run.schedules} | {one.schedule for one in history.ticks}
    for job in history.jobs.values():
        tally.cases += 1
        if job.schedule or job.id in history.ticks_of_job:
            reason = _no_tick(history, job, schedules)
        elif job.id in history.told or job.id in history.retried:
            continue
        elif job.retry_of:
            reason = _no_retry(history, job)
        else:
            reason = _no_submit(history, job)
        if reason:
            yield SuspectedViolation(job.id, reason)


def _no_tick(history: History, job: JobFact, schedules: set[str]) -> str:
    if job.id in history.ticks_of_job:
        return ""
    if job.schedule not in schedules:
        return f"was made by a schedule that does not exist: {job.schedule}"
    return "was made by a schedule, but by none of its ticks" if job.schedule in history.traced_schedules else ""


def _no_retry(history: History, job: JobFact) -> str:
    retries = history.calls_named(job.retry_of, RETRY)
    if not retries:
        return f"is a retry of {job.retry_of}, but no retry was requested"
    if not any(map(history.faults.may_be_done, retries)):
        return f"is a retry of {job.retry_of}, although every retry was refused"
    return ""


def _no_submit(history: History, job: JobFact) -> str:
    asks = history.asks_of.get(job.name, [])
    if not asks:
        return "exists, but was never submitted"
    if not any(map(history.faults.may_be_done, asks)):
        return "exists although every submit of it was refused"
    return ""


def invisible(history: History, tally: Tally) -> Iterator[SuspectedViolation]:
    """Finds calls that got "not found" or another job, although they were sent after the job was known to exist."""
    for job_id, since_us in history.certain_us.items():
        later = [call for call in history.calls_on.get(job_id, ()) if call.asked_us > since_us]
        tally.cases += sum(call.answered is not None or call.is_refused_as(NOT_FOUND) for call in later)
        missed = next((call for call in later if call.is_refused_as(NOT_FOUND) or _shows_another(call)), None)
        if missed is not None:
            found = "another job" if missed.answered is not None else "nothing"
            text = f"was known to exist when a later {missed.asked.call} found {found}"
            yield SuspectedViolation(job_id, text, ops=(missed.asked.op,))


def _shows_another(call: Call) -> bool:
    return call.answered is not None and any(seen.id != call.asked.job_id for seen in call.answered.seen)


RULES = (
    Rule("lost", "every acknowledged job exists, and has ended", "no submit was acknowledged", lost),
    Rule("unasked", "every job comes from a submit, a retry or a tick", NOT_READ, unasked),
    Rule("invisible", "acknowledged jobs can be read", "no job was read after its acknowledgement", invisible),
)
