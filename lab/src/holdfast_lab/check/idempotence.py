"""Rules about repeated calls: one job for one id, one key, one retry.

- A job with an id or a key from the client is one job, however often it is submitted or delivered. A job without either
  may exist twice if it was submitted twice, or if connections were duplicated.
- A retry creates another job of the same name; a retry with an unknown outcome may have created one.
"""

from collections import defaultdict
from collections.abc import Iterator

from holdfast_lab.check.calls import RETRY, Call, JobSubmission
from holdfast_lab.check.history import History
from holdfast_lab.check.verdict import Rule, SuspectedViolation, Tally
from holdfast_lab.history.records import JobFact


def duplicated(history: History, tally: Tally) -> Iterator[SuspectedViolation]:
    """Finds two jobs, or two ids in responses, for one name, one id or one key."""
    for twin in history.twins:
        yield SuspectedViolation(twin.id, "exists twice under one id")
    for name, every in history.asks_of.items():
        asks = list(filter(history.faults.may_be_done, every))
        if not asks or not _is_one_job(history, asks):
            continue
        is_known = any(ask.id for ask in asks) or name in history.named
        tally.cases += is_known and (len(asks) > 1 or history.faults.are_doubling(asks[0].call))
        yield from _two_of_a_name(history, name, asks)
    yield from _two_of_a_key(history)
    yield from _two_of_a_retry(history)


def _is_one_job(history: History, asks: list[JobSubmission]) -> bool:
    """Whether all these submits together can have created at most one job."""
    if len({ask.identity for ask in asks}) > 1:
        return False
    has_identity = any(asks[0].identity)
    return has_identity or (len(asks) == 1 and not history.faults.may_double(asks[0].call))


def _two_of_a_name(history: History, name: str, asks: list[JobSubmission]) -> Iterator[SuspectedViolation]:
    told = {ask.id: None for ask in asks if ask.id}
    there = {job.id: job for job in history.named.get(name, ())}
    ids = list(told | {job.id: None for job in there.values() if not _is_retry(history, job)})
    unheard = [job for job in there.values() if job.retry_of and job.id not in history.retried]
    if len(ids) > 1 + max(0, _retries_unheard(history, {*told, *there}) - len(unheard)):
        yield SuspectedViolation(ids[-1], f"is the job {name}, and so is {ids[0]}", also=tuple(ids[:-1]), names=(name,))
    made = asks[0].wanted.id
    if made and not asks[0].wanted.key and len(ids) == 1 and made not in ids:
        yield SuspectedViolation(ids[0], f"was submitted with another id, {made}", also=(made,), names=(name,))


def _is_retry(history: History, job: JobFact) -> bool:
    return bool(job.retry_of) or job.id in history.retried


def _retries_unheard(history: History, ids: set[str]) -> int:
    """Returns how many more jobs of a name may come from retries whose responses name no job."""
    calls = [call for one in ids for call in history.calls_named(one, RETRY)]
    return sum(not call.is_refused and not _names_any(call) for call in calls) + sum(
        map(history.faults.may_double, calls)
    )


def _names_any(call: Call) -> bool:
    return call.answered is not None and any(call.answered.ids)


def _two_of_a_retry(history: History) -> Iterator[SuspectedViolation]:
    unheard: defaultdict[str, list[str]] = defaultdict(list)
    for job in history.jobs.values():
        if job.retry_of and job.id not in history.retried:
            unheard[job.retry_of].append(job.id)
    for old, ids in unheard.items():
        calls = history.calls_named(old, RETRY)
        if any(map(history.faults.may_be_done, calls)) and len(ids) > _retries_unheard(history, {old}):
            heard = [job_id for call in calls if call.answered is not None for job_id in call.answered.ids]
            text = f"is a retry of {old}, as are {len(ids) + len(heard) - 1} others, for {len(calls)} retries"
            yield SuspectedViolation(ids[-1], text, also=(old, *heard, *ids[:-1]))


def _two_of_a_key(history: History) -> Iterator[SuspectedViolation]:
    found: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for ask in history.asks:
        if ask.wanted.key and ask.id:
            found[ask.wanted.key, ask.wanted.digest][ask.id] = None
    for key, job, digest in _contents(history):
        found[key, digest][job.id] = None
    for (key, digest), ids in found.items():
        if len({history.name_of(one) for one in ids}) > 1:  # same name: already reported
            first, *others = ids
            yield SuspectedViolation(
                first, f"and {others[0]} are both under the key {key} ({digest})", also=tuple(others)
            )


def _contents(history: History) -> Iterator[tuple[str, JobFact, str]]:
    """Yields every job that exists under a key, and the content that was submitted under its name."""
    for job in history.jobs.values():
        for ask in history.asks_of.get(job.name, ()):
            if job.key and ask.wanted.key == job.key:
                yield job.key, job, ask.wanted.digest


def key_reused(history: History, tally: Tally) -> Iterator[SuspectedViolation]:
    """Finds keys with two accepted contents, according to responses or to the store."""
    accepted: defaultdict[str, dict[str, str]] = defaultdict(dict)
    refused: defaultdict[str, set[str]] = defaultdict(set)
    for ask in history.asks:
        if ask.wanted.key and ask.id:
            accepted[ask.wanted.key].setdefault(ask.wanted.digest, ask.id)
        elif ask.wanted.key and ask.is_refused_for_its_key:
            refused[ask.wanted.key].add(ask.wanted.digest)
    tally.cases = sum(bool(digests - {digest}) for key, digests in refused.items() for digest in accepted[key])
    for key, job, digest in _contents(history):
        accepted[key].setdefault(digest, job.id)
    for key, ids in accepted.items():
        if len(ids) > 1:
            first, *others = ids.values()
            yield SuspectedViolation(
                first, f"and other content were both accepted under the key {key}", also=tuple(others)
            )


RULES = (
    Rule("duplicated", "one job for one id, key or retry", "no submit with an id or a key was repeated", duplicated),
    Rule("key reused", "no other content under a key", "no key was used for other content", key_reused),
)
