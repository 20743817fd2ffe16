"""Rules about which jobs there are: none lost, none made up, none out of sight.

- An unknown submit may have made its job or not, so such a job is never made up, and is lost only if somebody has seen
  more of it than that it waits.
- A retry makes another job of the same name.
"""

from collections.abc import Iterator

from holdfast.lab.check.calls import NOT_FOUND, RETRY, Ask, Call
from holdfast.lab.check.history import History
from holdfast.lab.check.ruling import NOT_READ, Rule, Suspect, Tally
from holdfast.lab.check.story import state_name
from holdfast.lab.history.records import TERMINAL, JobFact


def lost(history: History, tally: Tally) -> Iterator[Suspect]:
    """A job that was acknowledged, shown or begun is not there, is another, or has not ended though all was drained."""
    if not history.jobs:
        tally.doubt = NOT_READ
        return
    tally.cases = len(history.acknowledged_us)
    if not history.run.drained_us:
        tally.note = "every acknowledged job is there; the run was over before all had ended"
    for job_id in history.certain_us:
        job, is_acknowledged = history.jobs.get(job_id), job_id in history.acknowledged_us
        if job is None:
            yield Suspect(job_id, f"was {'acknowledged' if is_acknowledged else 'shown or begun'} and is not there")
        elif history.run.drained_us and is_acknowledged and job.state not in TERMINAL:
            yield Suspect(job_id, f"was acknowledged and is still {state_name(job.state)} after the drain")
    for job_id, asks in history.told.items():
        job = history.jobs.get(job_id)
        mistaken = [ask.wanted.name for ask in asks if job is not None and _is_another(ask, job)]
        if mistaken:
            yield Suspect(job_id, f"was told for {mistaken[0]}, and is another job", names=tuple(mistaken))
        elif len(asks) > 1 and not all(any(ask.identity) for ask in asks):
            yield Suspect(job_id, f"was told for {len(asks)} submits, and not all of them asked for the same job")
    yield from _mistaken_retries(history)


def _is_another(ask: Ask, job: JobFact) -> bool:
    """Whether this job is none that was asked for; other content under its key is another matter."""
    return ask.wanted.name != job.name and not (job.key and ask.wanted.key == job.key)


def _mistaken_retries(history: History) -> Iterator[Suspect]:
    """Whoever tries a job again is told a job of the same name."""
    for call in history.calls.values():
        if call.asked.call != RETRY or call.answered is None:
            continue
        old = call.asked.job_id
        name = history.name_of(old)
        for job_id in call.answered.ids:
            if name and job_id in history.jobs and history.jobs[job_id].name != name:
                text = f"was told for a retry of {old}, and is another job"
                yield Suspect(job_id, text, also=(old,), ops=(call.asked.op,))


def unasked(history: History, tally: Tally) -> Iterator[Suspect]:
    """A job is there that nobody asked for, and no tick made."""
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
            yield Suspect(job.id, reason)


def _no_tick(history: History, job: JobFact, schedules: set[str]) -> str:
    if job.id in history.ticks_of_job:
        return ""
    if job.schedule not in schedules:
        return f"was made by a schedule that nobody made: {job.schedule}"
    return "was made by a schedule, and by none of its ticks" if job.schedule in history.traced_schedules else ""


def _no_retry(history: History, job: JobFact) -> str:
    retries = history.calls_named(job.retry_of, RETRY)
    if not retries:
        return f"was made like {job.retry_of}, which nobody asked for"
    if not any(map(history.faults.may_be_done, retries)):
        return f"was made like {job.retry_of}, although that was refused"
    return ""


def _no_submit(history: History, job: JobFact) -> str:
    asks = history.asks_of.get(job.name, [])
    if not asks:
        return "is there and nobody asked for it"
    if not any(map(history.faults.may_be_done, asks)):
        return "is there although every submit of it was refused"
    return ""


def invisible(history: History, tally: Tally) -> Iterator[Suspect]:
    """A job could not be found, or another was shown, by a call that began after it was known to be there."""
    for job_id, since_us in history.certain_us.items():
        later = [call for call in history.calls_on.get(job_id, ()) if call.asked_us > since_us]
        tally.cases += sum(call.answered is not None or call.is_refused_as(NOT_FOUND) for call in later)
        missed = next((call for call in later if call.is_refused_as(NOT_FOUND) or _shows_another(call)), None)
        if missed is not None:
            found = "another job" if missed.answered is not None else "nothing"
            text = f"was known to be there when a {missed.asked.call} was asked that found {found}"
            yield Suspect(job_id, text, ops=(missed.asked.op,))


def _shows_another(call: Call) -> bool:
    return call.answered is not None and any(seen.id != call.asked.job_id for seen in call.answered.seen)


RULES = (
    Rule("lost", "every acknowledged job is there, and has ended", "no submit was acknowledged", lost),
    Rule("unasked", "every job was asked for, or made by a tick", NOT_READ, unasked),
    Rule("invisible", "what was acknowledged can be read", "nothing was read after its acknowledgement", invisible),
)
