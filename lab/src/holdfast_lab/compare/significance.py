"""Comparison of two topologies: a difference needs ranges that do not overlap, from at least three runs."""

import math
import statistics
from collections.abc import Callable, Sequence
from enum import Enum

import msgspec

from holdfast_lab.compare.figures import ComparisonTrial, Spread
from holdfast_lab.compare.results import ComparisonResults
from holdfast_lab.compare.workloads import RUNS_MIN, Workload

#: Findings name trials in which a larger share of the requests failed.
ERROR_SHARE_MAX = 0.01

Read = Callable[[ComparisonTrial], float | None]


class Metric(msgspec.Struct, frozen=True):
    """A figure of a trial, for the workloads in which it has a meaning."""

    key: str
    name: str
    unit: str
    is_more_better: bool
    read: Read
    applies: Callable[[Workload], bool]
    #: How the better topology is compared with the other.
    better: str = "better than"


class ComparisonVerdict(Enum):
    """The result of a comparison."""

    FIRST = "first"
    SECOND = "second"
    NO_DIFFERENCE = "no difference"
    TOO_FEW = "too few runs"


class ComparisonOutcome(msgspec.Struct, frozen=True):
    """Two topologies in one workload, by one metric."""

    workload: str
    first: list[float]
    second: list[float]
    verdict: ComparisonVerdict
    #: The ratio of the larger median to the smaller.
    factor: float = 1.0
    #: Whether too many requests of either failed.
    has_errors: bool = False


def verdict(first: Sequence[float], second: Sequence[float], *, is_more_better: bool) -> ComparisonVerdict:
    """The result for the values of each run."""
    if min(len(first), len(second)) < RUNS_MIN:
        return ComparisonVerdict.TOO_FEW
    if min(first) > max(second):
        return ComparisonVerdict.FIRST if is_more_better else ComparisonVerdict.SECOND
    if min(second) > max(first):
        return ComparisonVerdict.SECOND if is_more_better else ComparisonVerdict.FIRST
    return ComparisonVerdict.NO_DIFFERENCE


def factor(first: Sequence[float], second: Sequence[float]) -> float:
    """The ratio of the larger median to the smaller; infinite if that is 0."""
    if not first or not second:
        return 1.0
    low, high = sorted((statistics.median(first), statistics.median(second)))
    return high / low if low else math.inf


def chance(runs: int) -> float:
    """The probability that two equal topologies differ by this rule: all of one above all of the other."""
    return 2 / math.comb(2 * runs, runs)


def outcomes(results: ComparisonResults, metric: Metric, first: str, second: str) -> list[ComparisonOutcome]:
    """The outcome of each workload in which the metric has a meaning and a value."""
    found = []
    for workload in results.plan.workloads:
        if metric.applies(workload):
            ours, theirs = (values(results, metric, name, workload.name) for name in (first, second))
            if ours or theirs:
                result = verdict(ours, theirs, is_more_better=metric.is_more_better)
                shaky = any(has_errors(results, name, workload.name) for name in (first, second))
                found.append(ComparisonOutcome(workload.name, ours, theirs, result, factor(ours, theirs), shaky))
    return found


def values(results: ComparisonResults, metric: Metric, topology: str, workload: str) -> list[float]:
    """One value for each successful trial."""
    read = (metric.read(trial) for trial in results.of(topology, workload))
    return [value for value in read if value is not None]


def has_errors(results: ComparisonResults, topology: str, workload: str) -> bool:
    """Whether more than a small share of the requests failed."""
    trials = results.of(topology, workload)
    asked = sum(trial.asked for trial in trials)
    return sum(sum(trial.errors.values()) for trial in trials) > ERROR_SHARE_MAX * asked


def _p50(spread: Spread | None) -> float | None:
    return spread.p50 if spread else None


def _p99(spread: Spread | None) -> float | None:
    return spread.p99 if spread else None


def _of_method(name: str, take: Callable[[Spread | None], float | None]) -> Read:
    return lambda trial: take(trial.methods[name].latency) if name in trial.methods else None


def _of_done(take: Callable[[Spread | None], float | None]) -> Read:
    return lambda trial: take(trial.submit_done)


def _is_closed_mix(workload: Workload) -> bool:
    return not workload.is_open and not workload.is_life_cycle


def _is_closed_life(workload: Workload) -> bool:
    return not workload.is_open and workload.is_life_cycle


def _is_steady(workload: Workload) -> bool:
    return not workload.has_fault


def _cpu_ms_per_unit(trial: ComparisonTrial) -> float | None:
    """CPU milliseconds of a job where jobs are followed, else of a request."""
    rate = trial.jobs_per_s if trial.submit_done else trial.requests_per_s
    return 1_000 * trial.cpu_s / (rate * trial.duration_s) if rate else None


_SHARES = (("p50", _p50), ("p99", _p99))
REQUESTS = Metric(
    "req/s",
    "requests per second",
    "req/s",
    is_more_better=True,
    read=lambda one: one.requests_per_s,
    applies=_is_closed_mix,
    better="ahead of",
)
JOBS = Metric(
    "jobs/s",
    "jobs per second",
    "jobs/s",
    is_more_better=True,
    read=lambda one: one.jobs_per_s,
    applies=_is_closed_life,
    better="ahead of",
)
METRICS = (
    REQUESTS,
    JOBS,
    *(
        Metric(
            f"done {word}",
            f"submit→done, {word}",
            "ms",
            is_more_better=False,
            read=_of_done(take),
            applies=lambda one: one.is_life_cycle and _is_steady(one),
            better="quicker than",
        )
        for word, take in _SHARES
    ),
    *(
        Metric(
            f"{method} {word}",
            f"{method}, {word}",
            "ms",
            is_more_better=False,
            read=_of_method(method, take),
            applies=_is_steady,
            better="quicker than",
        )
        for method in ("SubmitJob", "GetJobStatus")
        for word, take in _SHARES
    ),
    Metric(
        "cpu",
        "CPU time per job or request",
        "ms",
        is_more_better=False,
        read=_cpu_ms_per_unit,
        applies=_is_steady,
        better="cheaper than",
    ),
    Metric(
        "memory",
        "memory of all processes",
        "MiB",
        is_more_better=False,
        read=lambda one: one.memory_bytes / (1 << 20) or None,
        applies=_is_steady,
        better="smaller than",
    ),
)
