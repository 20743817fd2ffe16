"""Rules about time: no job begins too early, no call takes too long.

- Wall clocks count only if none was ever set: jobs created under a wrong clock keep a wrong time. Even then the machine
  may have corrected its clock by some milliseconds, which a store whose time never goes back does not follow.
- The store's own clock always counts, and exactly, because the store decides by it.
- Monotonic time is the same in all processes.
"""

from collections.abc import Iterator

from holdfast_lab.check.calls import Call
from holdfast_lab.check.history import History
from holdfast_lab.check.verdict import Rule, SuspectedViolation, Tally
from holdfast_lab.history.records import JobFact

#: Tolerance for rounding.
_ROUNDING_MS = 2
#: How far the clock of a worker may be behind its store's, on the same machine.
_CORRECTION_MS = 100
#: How long after its deadline a call may end on a busy machine.
_GRACE_US = 10_000_000


def early(history: History, tally: Tally) -> Iterator[SuspectedViolation]:
    """Finds attempts that began before the job was due."""
    has_clocks, delayed, is_true = False, 0, not history.faults.have_stepped_clocks
    for job in history.jobs.values():
        due_ms = _due_ms(history, job)
        times = [one.wall_ms + _CORRECTION_MS for one in history.begun.get(job.id, ()) if one.wall_ms and is_true]
        grants = [one.at_ms + _ROUNDING_MS for one in history.grants.get(job.id, ()) if one.at_ms]
        has_clocks |= bool(times or grants)
        if not due_ms:
            continue
        delayed += 1
        tally.cases += bool(times or grants)
        first_ms = min(times + grants, default=due_ms)
        if first_ms < due_ms:
            yield SuspectedViolation(
                job.id, f"was begun at least {due_ms - first_ms} ms before it was due, at {due_ms} ms"
            )
    if delayed and not has_clocks:
        tally.not_offered = "clocks were set, and the store keeps no times of grants"


def _due_ms(history: History, job: JobFact) -> int:
    """Returns when it is due; 0 if it has no delay, or if that is not known.

    A store may keep the later time of another attempt instead, so the earlier of the two counts.
    """
    asks = [ask for ask in history.asks_of.get(job.name, ()) if not ask.is_refused]
    delays = [ask.wanted.delay_ms for ask in asks]
    if not delays or not min(delays) or job.retry_of or job.id in history.retried:
        return 0
    known = [job.created_ms + min(delays)] if job.created_ms else []
    if job.not_before_ms and (known or len(history.begun.get(job.id, ())) == 1):
        known.append(job.not_before_ms)
    return min(known, default=0)


def hung(history: History, tally: Tally) -> Iterator[SuspectedViolation]:
    """Finds calls without a response within their deadline and a grace."""
    last_us: dict[str, float] = {}
    for call in history.calls.values():
        heard_us = call.asked_us if call.answer is None else call.heard_us
        last_us[call.asked.client] = max(last_us.get(call.asked.client, 0), heard_us)
    hit = {one.target for one in history.faults.fired}
    for call in history.calls.values():
        if not call.asked.deadline_ms:
            continue
        until_us = call.asked_us + call.asked.deadline_ms * 1_000 + _GRACE_US
        if call.answer is None:
            # The client may have been killed, unless it made later calls.
            is_judged = call.asked.client not in hit and last_us[call.asked.client] > until_us
        else:
            is_judged = True
        tally.cases += is_judged
        if is_judged and call.heard_us > until_us:
            yield SuspectedViolation(call.asked.job_id, _late(call), ops=(call.asked.op,))


def _late(call: Call) -> str:
    text = f"a {call.asked.call} over {call.asked.via} with a deadline of {call.asked.deadline_ms} ms"
    if call.answer is None:
        return f"{text} never got a response, while its client continued"
    return f"{text} took {(call.heard_us - call.asked_us) / 1e6:.1f} s"


RULES = (
    Rule("early", "no job begins before it is due", "no delayed job was begun under a true clock", early),
    Rule("hung", "every call ends within its deadline", "no call had a deadline", hung),
)
