"""Is one better than the other? Only if the ranges over the runs do not touch; and never from fewer than three runs."""

import math
import statistics
from collections.abc import Callable, Sequence
from enum import Enum

import msgspec

from holdfast.lab.compare.figures import Spread, Trial
from holdfast.lab.compare.results import Results
from holdfast.lab.compare.workloads import RUNS_MIN, Workload

#: A trial in which a larger share of the requests failed is named beside whatever is said of it.
ERROR_SHARE_MAX = 0.01

Read = Callable[[Trial], float | None]


class Metric(msgspec.Struct, frozen=True):
    """Something that is measured once in every trial, for the workloads where it means something."""

    key: str
    name: str
    unit: str
    is_more_better: bool
    read: Read
    applies: Callable[[Workload], bool]
    #: What whoever is better is, of whoever is not.
    better: str = "better than"


class Verdict(Enum):
    """What two cells say."""

    FIRST = "first"
    SECOND = "second"
    NO_DIFFERENCE = "no difference"
    TOO_FEW = "too few runs"


class Outcome(msgspec.Struct, frozen=True):
    """Two topologies in one workload, by one metric."""

    workload: str
    first: list[float]
    second: list[float]
    verdict: Verdict
    #: How many times as much the larger median is.
    factor: float = 1.0
    #: The share of failed requests, if either has too many.
    has_errors: bool = False


def verdict(first: Sequence[float], second: Sequence[float], *, is_more_better: bool) -> Verdict:
    """From the values of each run."""
    if min(len(first), len(second)) < RUNS_MIN:
        return Verdict.TOO_FEW
    if min(first) > max(second):
        return Verdict.FIRST if is_more_better else Verdict.SECOND
    if min(second) > max(first):
        return Verdict.SECOND if is_more_better else Verdict.FIRST
    return Verdict.NO_DIFFERENCE


def factor(first: Sequence[float], second: Sequence[float]) -> float:
    """Of the medians, the larger to the smaller; infinite if the smaller is nothing."""
    if not first or not second:
        return 1.0
    low, high = sorted((statistics.median(first), statistics.median(second)))
    return high / low if low else math.inf


def chance(runs: int) -> float:
    """How often two equal topologies would be told apart by this rule: all of one above all of the other."""
    return 2 / math.comb(2 * runs, runs)


def outcomes(results: Results, metric: Metric, first: str, second: str) -> list[Outcome]:
    """For each workload in which the metric means something and somebody measured it."""
    found = []
    for workload in results.plan.workloads:
        if metric.applies(workload):
            ours, theirs = (values(results, metric, name, workload.name) for name in (first, second))
            if ours or theirs:
                result = verdict(ours, theirs, is_more_better=metric.is_more_better)
                shaky = any(has_errors(results, name, workload.name) for name in (first, second))
                found.append(Outcome(workload.name, ours, theirs, result, factor(ours, theirs), shaky))
    return found


def values(results: Results, metric: Metric, topology: str, workload: str) -> list[float]:
    """One value a good trial."""
    read = (metric.read(trial) for trial in results.of(topology, workload))
    return [value for value in read if value is not None]


def has_errors(results: Results, topology: str, workload: str) -> bool:
    """Whether more requests failed there than may be overlooked."""
    trials = results.of(topology, workload)
    asked = sum(trial.asked for trial in trials)
    return sum(sum(trial.errors.values()) for trial in trials) > ERROR_SHARE_MAX * asked


def _p50(spread: Spread | None) -> float | None:
    return spread.p50 if spread else None


def _p99(spread: Spread | None) -> float | None:
    return spread.p99 if spread else None


def _of_method(name: str, take: Callable[[Spread | None], float | None]) -> Read:
    return lambda trial: take(trial.methods[name].latency) if name in trial.methods else None


def _is_closed_mix(workload: Workload) -> bool:
    return not workload.is_open and not workload.is_life_cycle


def _is_closed_life(workload: Workload) -> bool:
    return not workload.is_open and workload.is_life_cycle


def _is_steady(workload: Workload) -> bool:
    return not workload.has_fault


def _cpu_ms_per_unit(trial: Trial) -> float | None:
    """For a job where jobs are followed, else for a request."""
    rate = trial.jobs_per_s if trial.submit_done else trial.requests_per_s
    return 1_000 * trial.cpu_s / (rate * trial.duration_s) if rate else None


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
    Metric(
        "done p50",
        "submit→done, p50",
        "ms",
        is_more_better=False,
        read=lambda one: _p50(one.submit_done),
        applies=lambda one: one.is_life_cycle and _is_steady(one),
        better="quicker than",
    ),
    Metric(
        "done p99",
        "submit→done, p99",
        "ms",
        is_more_better=False,
        read=lambda one: _p99(one.submit_done),
        applies=lambda one: one.is_life_cycle and _is_steady(one),
        better="quicker than",
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
        for word, take in (("p50", _p50), ("p99", _p99))
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
