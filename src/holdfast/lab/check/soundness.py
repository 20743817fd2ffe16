"""The rule about the store itself: what it says does not contradict itself."""

from collections.abc import Iterator

from holdfast.lab.check.history import History
from holdfast.lab.check.ruling import Rule, Suspect, Tally
from holdfast.lab.check.story import state_name
from holdfast.lab.history.records import TERMINAL


def sound(history: History, tally: Tally) -> Iterator[Suspect]:
    """The store shows damage, or speaks of jobs that it does not have."""
    tally.cases = len(history.jobs)
    for damage in history.damages:
        yield Suspect(damage.job_id, damage.text, records=() if damage.job_id else (damage,))
    if not history.jobs:
        return
    for job_id in history.grants:
        if job_id not in history.jobs:
            yield Suspect(job_id, "was granted and is not there")
    for job_id, ends in history.ends.items():
        if job_id not in history.jobs:
            yield Suspect(job_id, "has an end and is not there")
        strange = next((end.state for end in ends if end.state not in TERMINAL), None)
        if strange is not None:
            yield Suspect(job_id, f"has {state_name(strange)} for an end")
        elif job_id in history.jobs and history.jobs[job_id].state not in TERMINAL:
            yield Suspect(job_id, f"has an end and is {state_name(history.jobs[job_id].state)}")


RULES = (Rule("sound", "the store does not contradict itself", "the store was not read, or has no jobs", sound),)
