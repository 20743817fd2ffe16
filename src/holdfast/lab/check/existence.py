"""Rules about which jobs there are: none lost, none made up, none twice.

- An unknown submit may have made its job or not, so such a job is never lost and never made up.
- A job with an id or a key of the client's is one job, however often it is asked for and however often that arrives.
  One without either may come twice where it was asked for twice, or where connections were doubled.
- A retry makes another job of the same name.
"""

from collections import defaultdict
from collections.abc import Iterator

from holdfast.lab.check.calls import NOT_FOUND, RETRY, Ask
from holdfast.lab.check.history import History
from holdfast.lab.check.ruling import Rule, Suspect, Tally
from holdfast.lab.check.story import state_name
from holdfast.lab.history.records import TERMINAL, JobFact

_NOT_READ = "the store was not read, or has no jobs"


def lost(history: History, tally: Tally) -> Iterator[Suspect]:
    """An acknowledged job is not there, or has not ended although the run was drained."""
    if not history.jobs:
        tally.doubt = _NOT_READ
        return
    for job_id in history.acknowledged_us:
        tally.cases += 1
        job = history.jobs.get(job_id)
        if job is None:
            yield Suspect(job_id, "was acknowledged and is not there")
        elif history.run.drained_us and job.state not in TERMINAL:
            yield Suspect(job_id, f"was acknowledged and is still {state_name(job.state)} after the drain")


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
    if all(call.is_refused and not history.may_be_doubled(call) for call in retries):
        return f"was made like {job.retry_of}, although that was refused"
    return ""


def _no_submit(history: History, job: JobFact) -> str:
    asks = history.asks_of.get(job.name, [])
    if not asks:
        return "is there and nobody asked for it"
    if not all(ask.is_refused and not history.may_be_doubled(ask.call) for ask in asks):
        return ""
    return "is there although every submit of it was refused"


def duplicated(history: History, tally: Tally) -> Iterator[Suspect]:
    """There are two jobs, or two ids were told, for one name, one id or one key."""
    for twin in history.twins:
        yield Suspect(twin.id, "exists twice under one id")
    for name, every in history.asks_of.items():
        asks = [ask for ask in every if not ask.is_refused or history.may_be_doubled(ask.call)]
        if not asks or not _is_one_job(history, asks):
            continue
        tally.cases += len(asks) > 1 or history.is_asked_while_doubling(asks[0].call)
        yield from _two_of_a_name(history, name, asks)
    yield from _two_of_a_key(history)


def _is_one_job(history: History, asks: list[Ask]) -> bool:
    """Whether all of these can have made one job at most."""
    if len({ask.identity for ask in asks}) > 1:
        return False
    has_identity = any(asks[0].identity)
    return has_identity or (len(asks) == 1 and not history.may_be_doubled(asks[0].call))


def _two_of_a_name(history: History, name: str, asks: list[Ask]) -> Iterator[Suspect]:
    told = {ask.id: None for ask in asks if ask.id}
    there = {job.id: job for job in history.named.get(name, ())}
    ids = list(told | {job.id: None for job in there.values() if not _is_retry(history, job)})
    if len(ids) > 1 + _retries_unheard(history, {*told, *there}):
        yield Suspect(ids[-1], f"is the job {name}, and so is {ids[0]}", also=tuple(ids[:-1]), names=(name,))
    made = asks[0].wanted.id
    if made and not asks[0].wanted.key and len(ids) == 1 and made not in ids:
        yield Suspect(ids[0], f"was asked for under another id, {made}", also=(made,), names=(name,))


def _is_retry(history: History, job: JobFact) -> bool:
    return bool(job.retry_of) or job.id in history.retried


def _retries_unheard(history: History, ids: set[str]) -> int:
    """How many more jobs of a name retries may have made that nobody was told of."""
    calls = [call for one in ids for call in history.calls_named(one, RETRY)]
    return sum(call.is_unknown for call in calls) + sum(history.may_be_doubled(call) for call in calls)


def _two_of_a_key(history: History) -> Iterator[Suspect]:
    told: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for ask in history.asks:
        if ask.wanted.key and ask.id:
            told[ask.wanted.key, ask.wanted.digest][ask.id] = None
    for (key, digest), ids in told.items():
        names = {history.name_of(one) for one in ids}
        if len(ids) > 1 and len(names) > 1:  # under one name it was said already
            first, *others = ids
            yield Suspect(first, f"and {others[0]} were told for the key {key} ({digest})", also=tuple(others))
    for key, jobs in _by_key(history).items():
        if len(jobs) > 1 and len(_digests(history, jobs)) == 1 and len({job.name for job in jobs}) > 1:
            also = tuple(job.id for job in jobs[1:])
            yield Suspect(jobs[0].id, f"and {also[0]} are both there under the key {key}", also=also)


def _by_key(history: History) -> dict[str, list[JobFact]]:
    found: defaultdict[str, list[JobFact]] = defaultdict(list)
    for job in history.jobs.values():
        if job.key:
            found[job.key].append(job)
    return found


def _digests(history: History, jobs: list[JobFact]) -> set[str]:
    return {ask.wanted.digest for job in jobs for ask in history.asks_of.get(job.name, ()) if ask.wanted.key == job.key}


def key_reused(history: History, tally: Tally) -> Iterator[Suspect]:
    """Other content under a key was accepted."""
    by_key: defaultdict[str, list[Ask]] = defaultdict(list)
    for ask in history.asks:
        if ask.wanted.key:
            by_key[ask.wanted.key].append(ask)
    for key, asks in by_key.items():
        accepted = {ask.wanted.digest: ask.id for ask in asks if ask.id}
        judged = accepted.keys() | {ask.wanted.digest for ask in asks if ask.is_refused}
        tally.cases += bool(accepted) and len(judged) > 1
        if len(accepted) > 1:
            first, *others = accepted.values()
            names = tuple({ask.wanted.name for ask in asks})
            yield Suspect(first, f"and other content were both accepted under the key {key}", tuple(others), names)
    for key, jobs in _by_key(history).items():
        if len(jobs) > 1 and len(_digests(history, jobs)) > 1 and not _both_told(history, jobs):
            also = tuple(job.id for job in jobs[1:])
            yield Suspect(jobs[0].id, f"and {also[0]}, with other content, are there under the key {key}", also=also)


def _both_told(history: History, jobs: list[JobFact]) -> bool:
    return sum(job.id in history.told for job in jobs) > 1


def invisible(history: History, tally: Tally) -> Iterator[Suspect]:
    """A job could not be found by a call that began after its submit was answered."""
    for job_id, since_us in history.acknowledged_us.items():
        later = [call for call in history.calls_on.get(job_id, ()) if call.asked_us > since_us]
        tally.cases += sum(call.answered is not None or call.is_refused_as(NOT_FOUND) for call in later)
        missed = next((call for call in later if call.is_refused_as(NOT_FOUND)), None)
        if missed is not None:
            text = f"was not found by a {missed.asked.call} that was asked after its acknowledgement"
            yield Suspect(job_id, text, ops=(missed.asked.op,))


RULES = (
    Rule("lost", "every acknowledged job is there, and has ended", "no submit was acknowledged", lost),
    Rule("unasked", "every job was asked for, or made by a tick", _NOT_READ, unasked),
    Rule("duplicated", "one job for one id or key", "no submit under an id or a key came twice", duplicated),
    Rule("key reused", "no other content under a key", "no key was used for other content", key_reused),
    Rule("invisible", "what was acknowledged can be read", "nothing was read after its acknowledgement", invisible),
)
