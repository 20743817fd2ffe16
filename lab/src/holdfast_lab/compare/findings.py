"""Findings: sentences made from the figures.

Where the ranges over the runs overlap, the sentence says "no difference", however different the medians are.
"""

import itertools
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from holdfast_lab.compare.figures import ComparisonTrial
from holdfast_lab.compare.results import ComparisonResults
from holdfast_lab.compare.significance import (
    JOBS,
    METRICS,
    REQUESTS,
    ComparisonOutcome,
    ComparisonVerdict,
    Metric,
    chance,
    outcomes,
)
from holdfast_lab.compare.workloads import RUNS_MIN
from holdfast_lab.measure.numbers import number, spanned, times

_NAMED_MAX = 3
#: Cores that the lab itself, interrupts and an idle machine use.
OTHER_CORES_MAX = 0.2


def findings(results: ComparisonResults) -> dict[str, list[str]]:
    """Sentences by heading: each pair of topologies, failures, and how far to trust the figures."""
    found = {
        f"{first} and {second}": [
            *_pair(results, first, second),
            *_crossings(results, first, second),
            *_messages(results, first, second),
        ]
        for first, second in itertools.combinations(results.plan.topologies, 2)
    }
    if any(workload.has_fault for workload in results.plan.workloads):
        found["Through the fault"] = list(_faults(results))
    found["What failed"] = [*_refusals(results), *_errors(results), *_troubles(results)] or ["Nothing."]
    found["How far to trust this"] = list(_trust(results))
    return found


def _pair(results: ComparisonResults, first: str, second: str) -> Iterator[str]:
    if results.plan.runs < RUNS_MIN:
        yield f"Nothing is claimed from fewer than {RUNS_MIN} runs; the tables show what was measured."
        return
    for metric in METRICS:
        if rows := outcomes(results, metric, first, second):
            yield sentence(metric, first, second, rows)


def sentence(metric: Metric, first: str, second: str, rows: Sequence[ComparisonOutcome]) -> str:
    """One metric of two topologies over all workloads."""
    parts = [
        *_wins(metric, first, second, [row for row in rows if row.verdict is ComparisonVerdict.FIRST], len(rows)),
        *_wins(metric, second, first, [row for row in rows if row.verdict is ComparisonVerdict.SECOND], len(rows)),
        *_draws(metric, [row for row in rows if row.verdict is ComparisonVerdict.NO_DIFFERENCE], len(rows)),
        *_silences([row for row in rows if row.verdict is ComparisonVerdict.TOO_FEW]),
    ]
    return f"**{metric.name}**: {'; '.join(parts)}."


def _wins(metric: Metric, winner: str, loser: str, rows: Sequence[ComparisonOutcome], total: int) -> Iterator[str]:
    if not rows:
        return
    factors = [row.factor for row in rows]
    extent = (
        times(factors[0]) if len(set(map(times, factors))) == 1 else f"{times(min(factors))} to {times(max(factors))}"
    )
    where = _where(rows, total)
    shaky = [row.workload for row in rows if row.has_errors]
    caution = f" (with more than 1 % of the requests failed in {_few(shaky)})" if shaky else ""
    yield f"{winner} is {metric.better} {loser}{where}, by a factor of {extent}{caution}"


def _draws(metric: Metric, rows: Sequence[ComparisonOutcome], total: int) -> Iterator[str]:
    if not rows:
        return
    examples = [
        f"{row.workload}: {spanned(row.first)} and {spanned(row.second)} {metric.unit}" for row in rows[:_NAMED_MAX]
    ]
    more = f", and {len(rows) - _NAMED_MAX} more" if len(rows) > _NAMED_MAX else ""
    yield f"no difference{_where(rows, total)} ({'; '.join(examples)}{more})"


def _silences(rows: Sequence[ComparisonOutcome]) -> Iterator[str]:
    if rows:
        yield f"nothing can be said of {_few([row.workload for row in rows])}: fewer than {RUNS_MIN} runs on one side"


def _where(rows: Sequence[ComparisonOutcome], total: int) -> str:
    if len(rows) == total:
        return {1: " in the one workload", 2: " in both workloads"}.get(total, f" in all {total} workloads")
    if len(rows) <= _NAMED_MAX:
        return f" in {_few([row.workload for row in rows])}"
    return f" in {len(rows)} of {total} workloads"


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more


def _crossings(results: ComparisonResults, first: str, second: str) -> Iterator[str]:
    """Workloads in which more concurrency reverses the order of two topologies."""
    for metric in (REQUESTS, JOBS):
        rows = {row.workload: row for row in outcomes(results, metric, first, second)}
        for (kind, job_ms), names in _series(results).items():
            ours = [(c, rows[name].verdict) for c, name in names if name in rows]
            leads = {
                who: [str(c) for c, result in ours if result is which]
                for who, which in ((first, ComparisonVerdict.FIRST), (second, ComparisonVerdict.SECOND))
            }
            if all(leads.values()):
                told = " and ".join(f"{who} is ahead at {', '.join(at)}" for who, at in leads.items())
                yield f"**the curves cross** ({metric.name}, {kind}, jobs of {job_ms} ms): {told} in flight."


def _series(results: ComparisonResults) -> dict[tuple[str, int], list[tuple[int, str]]]:
    """Closed loops that differ only in their concurrency."""
    found: dict[tuple[str, int], list[tuple[int, str]]] = {}
    for workload in results.plan.workloads:
        if not workload.is_open:
            found.setdefault((workload.kind, workload.job_ms), []).append((workload.concurrency, workload.name))
    return {key: sorted(names) for key, names in found.items() if len(names) > 1}


def _messages(results: ComparisonResults, first: str, second: str) -> Iterator[str]:
    counts = {one.topology: one.per_job for one in results.messages if not one.refusal}
    if first in counts and second in counts:
        yield (
            f"**messages per job** (counted): {first} {number(counts[first])}, {second} {number(counts[second])}, "
            f"requests and replies together."
        )


def _faults(results: ComparisonResults) -> Iterator[str]:
    for workload in results.plan.workloads:
        if workload.has_fault:
            for name in results.plan.topologies:
                yield from _fault(results, name, workload.name)


def _fault(results: ComparisonResults, topology: str, workload: str) -> Iterator[str]:
    trials = [trial for trial in results.of(topology, workload) if trial.fault]
    if not trials:
        yield f"**{topology}**: no run."
        return
    faults = [trial.fault for trial in trials if trial.fault]
    jobs = sum((Counter(trial.jobs) for trial in trials), Counter[str]())
    failed = [float(sum(trial.errors.values())) for trial in trials]
    asked = sum(trial.asked for trial in trials)
    unfinished = jobs["lost"] + jobs["given up"]
    yield (
        f"**{topology}** (a process of the role {faults[0].role} killed): no job finished for "
        f"{spanned([one.gap_s for one in faults])} s at the longest; the slowest job took "
        f"{spanned([one.slowest_ms / 1_000 for one in faults])} s; of {jobs.total()} accepted jobs {unfinished} were "
        f"not seen to end ({jobs['lost']} unknown afterwards, {jobs['given up']} still waited for); "
        f"{number(sum(failed))} of {asked} requests failed."
    )


def _refusals(results: ComparisonResults) -> Iterator[str]:
    for trial in results.trials:
        if trial.refusal:
            yield f"Run {trial.run + 1} of {trial.topology}, {trial.workload}, gave no figures: {trial.refusal}."
    for count in results.messages:
        if count.refusal:
            yield f"The messages of {count.topology} could not be counted: {count.refusal}."


def _errors(results: ComparisonResults) -> Iterator[str]:
    for name in results.plan.topologies:
        for workload in results.plan.workloads:
            trials = results.of(name, workload.name)
            codes = sum((Counter(trial.errors) for trial in trials), Counter[str]())
            if codes:
                asked = sum(trial.asked for trial in trials)
                told = ", ".join(f"{code} {count}" for code, count in codes.most_common())
                yield f"{name}, {workload.name}: {codes.total()} of {asked} requests failed ({told})."


def _troubles(results: ComparisonResults) -> Iterator[str]:
    for trial in results.trials:
        for trouble in trial.troubles:
            yield f"{trial.topology}, {trial.workload}, run {trial.run + 1}: {trouble}."


def _trust(results: ComparisonResults) -> Iterator[str]:
    runs = results.plan.runs
    rule = "A difference is claimed where the worst run of one is better than the best run of the other"
    if runs < RUNS_MIN:
        yield f"{rule}, and never from fewer than {RUNS_MIN} runs each: here there were {runs}, so nothing is claimed."
    else:
        equal = f"two equal topologies differ by chance in {100 * chance(runs):.2g} of 100 comparisons"
        yield f"{rule}. With {runs} runs each, {equal}."
    yield (
        "Clients and servers share one machine, and everything but the topology is the same for all; the figures "
        "compare topologies, they do not say what either can do at its best."
    )
    good = [trial for trial in results.trials if trial.is_good]
    if good:
        yield from _machine(results, good)


def _machine(results: ComparisonResults, trials: Sequence[ComparisonTrial]) -> Iterator[str]:
    clients, busy = results.plan.clients, max(trial.client_cores for trial in trials)
    yield f"The {clients} client processes used {number(busy)} cores at the most; near {clients}, they are the limit."
    others = [trial.other_cores for trial in trials]
    disturbed = [trial for trial in trials if trial.other_cores > OTHER_CORES_MAX]
    told = (
        f"Everything else on the machine used {number(statistics.median(others))} cores, {number(max(others))} at most"
    )
    if disturbed:
        yield (
            f"**{told}: in {len(disturbed)} of {len(trials)} trials more than {OTHER_CORES_MAX:g}**, so that these "
            "figures were disturbed and should be taken again on a machine that is idle."
        )
    else:
        yield f"{told}: it was idle but for the trials."
