"""Rules about ends: there is one, it stays, and it is one that the job can have.

- Readings are compared only where one was answered before the other was asked; a list may lag, so it shows an end but
  never takes one back.
- A cancel that nobody knows the outcome of may have happened.
"""

from collections.abc import Iterator

from holdfast.lab.check.calls import CANCEL, LIST, Reading
from holdfast.lab.check.history import History
from holdfast.lab.check.ruling import Rule, Suspect, Tally
from holdfast.lab.check.story import STATES, state_name
from holdfast.lab.history.records import CANCELED, DONE, FAILED, TERMINAL, JobFact, Wanted

#: A report that was lost at a time when nothing was broken is a bug; within so long of a fault it is none.
_GRACE_US = 60_000_000
#: Calls that cancel jobs without naming them.
_SWEEPING = frozenset({"purge", "drain"})


def doubly_terminal(history: History, tally: Tally) -> Iterator[Suspect]:
    """Two ends were accepted, or two different ones were told."""
    for job_id in {**history.jobs, **history.ends, **history.readings}:
        ends = history.ends.get(job_id, [])
        readings = [one.seen for one in history.readings.get(job_id, ()) if one.seen.state in TERMINAL]
        job = history.jobs.get(job_id)
        fact = [job] if job is not None and job.state in TERMINAL else []
        tally.cases += len(ends) + len(readings) + len(fact) > 1
        states = dict.fromkeys(
            [*(end.state for end in ends), *(seen.state for seen in readings), *(one.state for one in fact)]
        )
        runs = dict.fromkeys(run for run in [*(seen.run for seen in readings), *(one.run for one in fact)] if run)
        if len(ends) > 1:
            yield Suspect(job_id, f"has {len(ends)} ends that were accepted")
        elif len(states) > 1:
            yield Suspect(job_id, f"ended {' and '.join(map(state_name, states))}")
        elif len(runs) > 1:
            yield Suspect(job_id, f"has the results of {len(runs)} runs: {', '.join(runs)}")


def unfinished(history: History, tally: Tally) -> Iterator[Suspect]:
    """Something terminal was seen, and later something that is not."""
    for job_id, readings in history.readings.items():
        ended = [one for one in readings if one.seen.state in TERMINAL]
        if not ended:
            continue
        first = min(ended, key=lambda one: one.heard_us)
        later = [one for one in readings if one.call.asked_us > first.heard_us and one.call.asked.call != LIST]
        job = history.jobs.get(job_id)
        tally.cases += bool(later) or job is not None
        back = next((one for one in later if one.seen.state not in TERMINAL), None)
        if back is not None:
            yield Suspect(job_id, _went_back(first, state_name(back.seen.state)))
        elif job is not None and job.state not in TERMINAL:
            yield Suspect(job_id, _went_back(first, f"{state_name(job.state)} in the store"))


def _went_back(first: Reading, then: str) -> str:
    return f"was seen {state_name(first.seen.state)}, and later {then}"


def illegal(history: History, tally: Tally) -> Iterator[Suspect]:
    """A job is in a state that there is not, or that it cannot have come to."""
    is_swept = any(call.asked.call in _SWEEPING for call in history.calls.values())
    for job in history.jobs.values():
        tally.cases += job.state in TERMINAL
        if job.state not in STATES:
            yield Suspect(job.id, f"is in a state that there is not: {job.state}")
        elif job.state == DONE and history.began and not history.begun.get(job.id):
            yield Suspect(job.id, "is DONE and nobody began it")
        elif job.state == CANCELED and not (is_swept or job.schedule or history.calls_named(job.id, CANCEL)):
            yield Suspect(job.id, "is CANCELED and nobody asked for that")
    for job_id, readings in history.readings.items():
        if any(one.seen.state not in STATES for one in readings):
            yield Suspect(job_id, "was shown in a state that there is not")


def poison(history: History, tally: Tally) -> Iterator[Suspect]:
    """A job that can only fail did not end FAILED after its attempts."""
    for name, asks in history.asks_of.items():
        wanted = asks[0].wanted
        if wanted.fails < wanted.max_attempts:
            continue
        for job in history.named.get(name, ()):
            tally.cases += job.state in {DONE, FAILED}
            if job.state == DONE:
                yield Suspect(job.id, f"can only fail ({wanted.fails} times of {wanted.max_attempts}), and is DONE")
            elif job.state == FAILED and _gave_up_early(history, job, wanted):
                tries = len(history.begun.get(job.id, ()))
                yield Suspect(
                    job.id, f"is FAILED after {tries} of {wanted.max_attempts} attempts, and nothing was broken"
                )


def _gave_up_early(history: History, job: JobFact, wanted: Wanted) -> bool:
    """Only where no fault can have cost it an attempt that nobody saw."""
    begun = history.begun.get(job.id, [])
    ended = [history.ended.get(one.run) for one in begun]
    if (
        not begun
        or len(begun) >= wanted.max_attempts
        or max(job.grants, len(history.grants.get(job.id, ()))) > len(begun)
    ):
        return False
    times = [one.at_us for one in ended if one is not None and one.outcome == "failed"]
    return len(times) == len(begun) and not history.is_disturbed(begun[0].at_us, times[-1] + _GRACE_US, _GRACE_US)


def drained(history: History, tally: Tally) -> Iterator[Suspect]:
    """Not everything had ended within the bound after the last fault."""
    run = history.run
    if not run.faults_ended_us:
        tally.doubt = "when the faults ended is not known"
        return
    tally.cases = len(history.jobs)
    waiting = [job for job in history.jobs.values() if job.state not in TERMINAL]
    for job in waiting:
        if not (run.drained_us and job.id in history.acknowledged_us):  # that one is lost
            yield Suspect(job.id, f"is {state_name(job.state)} at the end of the run")
    took_s = (run.drained_us - run.faults_ended_us) / 1e6
    if not run.drained_us and not waiting:
        yield Suspect("", f"not everything had ended {run.drain_bound_s:g} s after the last fault")
    elif run.drained_us and run.drain_bound_s and took_s > run.drain_bound_s:
        yield Suspect("", f"it took {took_s:.1f} s until everything had ended; the bound is {run.drain_bound_s:g} s")


RULES = (
    Rule("doubly terminal", "one end, told alike by all", "no end was told twice", doubly_terminal),
    Rule("unfinished", "an end stays", "nothing was read after its end", unfinished),
    Rule("illegal", "only states that a job can have come to", "no job ended", illegal),
    Rule("poison", "what can only fail ends FAILED after its attempts", "no job could only fail", poison),
    Rule("drained", "everything ends within the bound", "the store was not read, or has no jobs", drained),
)
