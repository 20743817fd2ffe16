"""Applies every rule to a history."""

from itertools import chain
from pathlib import Path

from holdfast_lab.check import (
    coverage,
    ends,
    existence,
    idempotence,
    interfaces,
    leases,
    order,
    schedules,
    soundness,
    times,
)
from holdfast_lab.check.history import History
from holdfast_lab.check.story import story
from holdfast_lab.check.verdict import NOT_READ, Finding, Rule, Ruling, Status, SuspectedViolation, Tally, Verdict
from holdfast_lab.history.files import read_records, read_run

_MODULES = (existence, idempotence, ends, leases, order, times, schedules, interfaces, soundness, coverage)
RULES: tuple[Rule, ...] = tuple(chain.from_iterable(module.RULES for module in _MODULES))
#: The number of findings of a rule that are kept with their evidence; the others are counted.
_FINDINGS_MAX = 100


def judge(folder: Path) -> Verdict:
    """Checks the run in this folder; raises `FailedPreconditionError` if it has no history."""
    return judge_history(History(read_run(folder), read_records(folder)))


def judge_history(history: History) -> Verdict:
    """Checks a history that is in memory."""
    return Verdict(history.run, tuple(_apply(rule, history) for rule in RULES), dict(history.read))


def _apply(rule: Rule, history: History) -> Ruling:
    tally, count, kept = Tally(), 0, []
    for suspect in rule.look(history, tally):
        count += 1
        if count <= _FINDINGS_MAX:
            kept.append(_found(rule, suspect, history))
    status, reason = _status(rule, tally, count, was_read=bool(history.jobs))
    return Ruling(rule.name, rule.promise, status, tally.cases, reason, count, tuple(kept))


def _found(rule: Rule, suspect: SuspectedViolation, history: History) -> Finding:
    evidence = story(history, (suspect.job_id, *suspect.also), suspect.names, suspect.ops, suspect.records)
    return Finding(rule.name, suspect.job_id, suspect.text, tuple(evidence))


def _status(rule: Rule, tally: Tally, count: int, *, was_read: bool) -> tuple[Status, str]:
    if count:
        return Status.BROKEN, ""
    if tally.not_offered:
        return Status.NOT_OFFERED, tally.not_offered
    if tally.doubt:
        return Status.UNKNOWN, tally.doubt
    if not tally.cases:
        return Status.UNKNOWN, rule.idle if was_read else NOT_READ
    return Status.KEPT, tally.note
