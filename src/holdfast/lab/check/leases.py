"""Rules about leases: whose result counts, and who may run.

- Tokens of a job only grow, and a job is not handed out again after its end. So the result of an attempt is stale as
  soon as any attempt under a later token has begun, whenever that was. Where results are kept apart from states, a
  result may be there before the state says so, and the job is handed out once more: there it is stale only if the
  later attempt had begun before the earlier one ended, and so before anybody can have reported it.
- A worker may begin late what it was given in time: stopped in between, it holds a lease that is long over. So an
  attempt that begins after a cancel breaks nothing if it can have been granted before it.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from holdfast.lab.check.calls import CANCEL
from holdfast.lab.check.history import History
from holdfast.lab.check.ruling import Rule, Suspect, Tally
from holdfast.lab.history.records import CANCELED, DONE, Began

#: For so long before a cancel a fault may have held up a lease, or taken it away, that had been given before it.
_HELD_UP_US = 60_000_000


def stale_accepted(history: History, tally: Tally) -> Iterator[Suspect]:
    """A result counted although a later attempt had begun, or came of a run that nobody began."""
    for job_id in {**history.jobs, **history.readings, **history.ends}:
        newest = _newest_token(history, job_id)
        runs = _runs(history, job_id)
        tokens = [] if history.run.results_apart else _accepted_tokens(history, job_id)
        attempts = len(history.begun.get(job_id, ())) + len(history.grants.get(job_id, ()))
        tally.cases += attempts > 1 and newest > 0 and bool(runs or tokens) and _has_several(history, job_id)
        unknown = next((run for run in runs if history.began and not _is_of(history.began.get(run), job_id)), None)
        stale = next((run for run in runs if 0 < _token(history, run) < _newest_before(history, run, newest)), None)
        late = next((token for token in tokens if token < newest), None)
        if unknown is not None:
            yield Suspect(job_id, f"has the result of {unknown}, which is no run of it")
        elif stale is not None:
            text = f"has the result of {stale} under token {_token(history, stale)}, though {newest} had been given"
            yield Suspect(job_id, text)
        elif late is not None:
            yield Suspect(job_id, f"ended under token {late}, though {newest} had been given")


def _is_of(began: Began | None, job_id: str) -> bool:
    return began is not None and began.job_id == job_id


def _token(history: History, run: str) -> int:
    return history.began[run].token if run in history.began else 0


def _newest_before(history: History, run: str, newest: int) -> int:
    """The newest token that was given before the run can have been reported."""
    if not history.run.results_apart:
        return newest
    ended, job_id = history.ended.get(run), history.began[run].job_id
    before = [one.token for one in history.begun.get(job_id, ()) if ended is not None and one.at_us < ended.at_us]
    return max(before, default=0)


def _has_several(history: History, job_id: str) -> bool:
    tokens = {one.token for one in history.begun.get(job_id, ())} | {
        one.token for one in history.grants.get(job_id, ())
    }
    return len(tokens) > 1


def _newest_token(history: History, job_id: str) -> int:
    begun = max((one.token for one in history.begun.get(job_id, ())), default=0)
    return max(begun, max((one.token for one in history.grants.get(job_id, ())), default=0))


def _runs(history: History, job_id: str) -> list[str]:
    """The attempts that its results name; only a good one names any."""
    job = history.jobs.get(job_id)
    runs = [one.seen.run for one in history.readings.get(job_id, ()) if one.seen.state == DONE]
    if job is not None and job.state == DONE:
        runs.insert(0, job.run)
    return list(dict.fromkeys(filter(None, runs)))


def _accepted_tokens(history: History, job_id: str) -> list[int]:
    job = history.jobs.get(job_id)
    tokens = [one.token for one in history.ends.get(job_id, ())]
    return [token for token in (job.token if job is not None else 0, *tokens) if token]


def two_leases(history: History, tally: Tally) -> Iterator[Suspect]:
    """Tokens do not grow, one was given twice, or there were more executions than grants."""
    keeps_grants = "grants" in history.run.keeps
    if not keeps_grants:
        tally.note = "grants are not kept: judged by what workers began"
    for job_id in {**history.grants, **history.begun}:
        grants, begun = history.grants.get(job_id, []), history.begun.get(job_id, [])
        tally.cases += 1
        given = [one.token for one in grants if one.token]
        used = Counter(one.token for one in begun)
        twice = next((token for token, count in used.items() if count > 1 and token), None)
        if any(later <= earlier for earlier, later in pairwise(given)):
            yield Suspect(job_id, f"was granted under tokens that do not grow: {', '.join(map(str, given))}")
        elif twice is not None:
            yield Suspect(job_id, f"was begun {used[twice]} times under token {twice}")
        elif reason := _beyond_grants(history, job_id, begun, set(given), is_complete=keeps_grants):
            yield Suspect(job_id, reason)


def _beyond_grants(history: History, job_id: str, begun: list[Began], given: set[int], *, is_complete: bool) -> str:
    job = history.jobs.get(job_id)
    if job is None:
        return ""
    if job.grants and len(begun) > job.grants:
        return f"was begun {len(begun)} times, and granted {job.grants} times"
    if not is_complete or job.grants > len(given):
        return ""
    stranger = next((one.token for one in begun if one.token and one.token not in given), None)
    return f"was begun under token {stranger}, which was never given" if stranger is not None else ""


def ran_after_cancel(history: History, tally: Tally) -> Iterator[Suspect]:
    """An attempt began, or was granted, after a cancel was answered with CANCELED."""
    for job_id, calls in history.calls_on.items():
        canceled_us = [
            call.answered.at_us
            for call in calls
            if call.asked.call == CANCEL
            and call.answered is not None
            and any(seen.id == job_id and seen.state == CANCELED for seen in call.answered.seen)
        ]
        if not canceled_us:
            continue
        tally.cases += 1
        since_us = min(canceled_us)
        late = [one for one in history.begun.get(job_id, ()) if one.at_us > since_us]
        culprit = next((one for one in late if not _is_excused(history, one, since_us)), None)
        if culprit is not None:
            text = f"was begun {(culprit.at_us - since_us) / 1e6:.3f} s after its cancel was answered with CANCELED"
            yield Suspect(job_id, text)
    yield from _granted_after_end(history)


def _is_excused(history: History, late: Began, since_us: int) -> bool:
    """Whether it can have been granted before the cancel: the store says so, or a fault held it up."""
    ends = [one.place for one in history.ends.get(late.job_id, ()) if one.place]
    grant = next((one for one in history.grants.get(late.job_id, ()) if one.token == late.token), None)
    if ends and grant is not None:
        return grant.place < min(ends)
    return history.is_disturbed(since_us, since_us, _HELD_UP_US)


def _granted_after_end(history: History) -> Iterator[Suspect]:
    for job_id, ends in history.ends.items():
        places = [one.place for one in ends if one.place and one.state == CANCELED]
        grants = history.grants.get(job_id, [])
        begun = {one.token for one in history.begun.get(job_id, ())}
        if places and any(one.place > min(places) and one.token not in begun for one in grants):
            yield Suspect(job_id, "was granted after it had been CANCELED")


RULES = (
    Rule(
        "stale accepted",
        "only the newest attempt's result counts",
        "no job had two attempts and a result",
        stale_accepted,
    ),
    Rule("two leases", "one lease at a time, with a token that grows", "nothing was granted or begun", two_leases),
    Rule(
        "ran after cancel", "nothing begins after its cancel", "no cancel was answered with CANCELED", ran_after_cancel
    ),
)
