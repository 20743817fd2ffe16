"""The rule about order: within a lane, jobs are granted in the order of their submits.

Only certain violations are reported. A job was overtaken if it was acknowledged before the submit of the other was
sent, has the lower number in the same lane of the same store, had no delay, was never to be canceled, and got its
first grant after the other's. Overlapping submits, and jobs of one batch, are not compared.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from holdfast_lab.check.calls import CANCEL
from holdfast_lab.check.history import History
from holdfast_lab.check.verdict import Rule, SuspectedViolation, Tally
from holdfast_lab.history.records import JobFact

_Lane = tuple[str, str, str, int]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A job in its lane: its first grant, and the times of its submit and of its acknowledgement."""

    job: JobFact
    place: int
    asked_us: float
    heard_us: float
    #: Whether other jobs must not overtake it.
    is_waiting: bool


def out_of_order(history: History, tally: Tally) -> Iterator[SuspectedViolation]:
    """Finds jobs that got their first grant after a job that was submitted later."""
    if "order" not in history.run.keeps or "grants" not in history.run.keeps:
        tally.not_offered = "the store keeps no order of submits and grants"
        return
    lanes: defaultdict[_Lane, list[_Entry]] = defaultdict(list)
    for job in history.jobs.values():
        entry = _entry(history, job)
        if entry is not None:
            lanes[job.store, job.queue, job.type, job.priority].append(entry)
    for entries in lanes.values():
        yield from _overtaken(entries, tally)


def _entry(history: History, job: JobFact) -> _Entry | None:
    grants = history.grants.get(job.id)
    if not grants or not job.number or len(grants) < job.grants:
        return None
    asked_us = _asked_us(history, job)
    heard_us = history.acknowledged_us.get(job.id, inf)
    return _Entry(job, grants[0].place, asked_us, heard_us, _is_waiting(history, job))


def _asked_us(history: History, job: JobFact) -> float:
    """Returns a lower bound of the time of its submit."""
    if job.id in history.retried:
        return history.retried[job.id].asked_us
    if job.retry_of or job.schedule:
        return 0
    asks = history.asks_of.get(job.name)
    return asks[0].call.asked_us if asks else 0


def _is_waiting(history: History, job: JobFact) -> bool:
    is_delayed = any(ask.wanted.delay_ms for ask in history.asks_of.get(job.name, ())) or (
        job.not_before_ms > job.created_ms
    )
    return job.id in history.acknowledged_us and not is_delayed and not history.calls_named(job.id, CANCEL)


def _overtaken(entries: list[_Entry], tally: Tally) -> Iterator[SuspectedViolation]:
    """Walks through the grants; a heap holds the jobs that still wait, the first acknowledged on top."""
    entries.sort(key=lambda one: one.place)
    first_us = min((one.heard_us for one in entries if one.is_waiting), default=inf)
    waiting = [(one.heard_us, one.job.id, one) for one in entries if one.is_waiting]
    heapq.heapify(waiting)
    gone: set[str] = set()
    for later in entries:
        tally.cases += first_us < later.asked_us
        gone.add(later.job.id)
        passed: list[tuple[float, str, _Entry]] = []
        while waiting and (waiting[0][1] in gone or waiting[0][0] < later.asked_us):
            one = heapq.heappop(waiting)
            _, job_id, earlier = one
            if job_id in gone:
                continue
            if earlier.job.number < later.job.number and earlier.place > later.place:
                yield _suspect(earlier, later)
            else:
                passed.append(one)
        for one in passed:
            heapq.heappush(waiting, one)


def _suspect(earlier: _Entry, later: _Entry) -> SuspectedViolation:
    text = (
        f"has number {earlier.job.number} and its first grant at place {earlier.place}, after that of {later.job.id}, "
        f"which has number {later.job.number} and place {later.place} and was submitted later"
    )
    return SuspectedViolation(earlier.job.id, text, also=(later.job.id,))


RULES = (
    Rule(
        "out of order",
        "first come, first granted, within a lane",
        "no two grants of a lane can be compared",
        out_of_order,
    ),
)
