"""The rule about the store itself: it does not contradict itself."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from operator import attrgetter

from holdfast_lab.check.history import History
from holdfast_lab.check.story import state_name
from holdfast_lab.check.verdict import NOT_READ, Rule, SuspectedViolation, Tally
from holdfast_lab.history.records import DONE, FAILED, TERMINAL, GrantFact


def sound(history: History, tally: Tally) -> Iterator[SuspectedViolation]:
    """Finds damage, grants and ends of missing jobs, and contradictions about ends and grants."""
    tally.cases = len(history.jobs)
    for damage in history.damages:
        yield SuspectedViolation(damage.job_id, damage.text, records=() if damage.job_id else (damage,))
    yield from _contradictions(history)
    if "order" in history.run.keeps:
        yield from _time_goes_back(history)


def _contradictions(history: History) -> Iterator[SuspectedViolation]:
    for job_id, grants in history.grants.items():
        job = history.jobs.get(job_id)
        if job is None:
            yield SuspectedViolation(job_id, "was granted, but is missing")
        elif 0 < job.grants < len(grants):
            yield SuspectedViolation(job_id, f"was granted {len(grants)} times, but its count is {job.grants}")
    for job_id, ends in history.ends.items():
        job = history.jobs.get(job_id)
        strange = next((end.state for end in ends if end.state not in TERMINAL), None)
        again = next((state for state in (DONE, FAILED) if history.granted_after_end(job_id, state)), None)
        if job is None:
            yield SuspectedViolation(job_id, "has an end, but is missing")
        elif strange is not None:
            yield SuspectedViolation(job_id, f"has the end {state_name(strange)}, which is not terminal")
        elif job.state not in TERMINAL:
            yield SuspectedViolation(job_id, f"has an end, but is {state_name(job.state)}")
        elif again is not None:
            yield SuspectedViolation(job_id, f"was granted after it had ended {state_name(again)}")


def _time_goes_back(history: History) -> Iterator[SuspectedViolation]:
    """Finds a later grant with an earlier time; log time never goes back, even if a clock does."""
    stores: defaultdict[str, list[GrantFact]] = defaultdict(list)
    for grants in history.grants.values():
        for one in grants:
            if one.at_ms:
                stores[one.store].append(one)
    for log in stores.values():
        log.sort(key=attrgetter("place"))
        for before, after in pairwise(log):
            if after.at_ms < before.at_ms:
                text = f"was granted at {after.at_ms} ms, after {before.job_id} at {before.at_ms} ms: time went back"
                yield SuspectedViolation(after.job_id, text, also=(before.job_id,))


RULES = (Rule("sound", "the store does not contradict itself", NOT_READ, sound),)
