"""Workloads, and the plans made of them.

Workloads of one group use the same processes, one after the other; each group gets new processes in every run.
"""

from collections.abc import Iterator, Mapping

import msgspec

from holdfast.errors import InvalidArgumentError
from holdfast_lab.measure.rounds import orders

#: In the order of the contract; a record has the index of its method.
METHODS = ("SubmitJob", "GetJobStatus", "GetJobResult", "CancelJob", "ListJobs")
SUBMIT, STATUS, RESULT, CANCEL, LIST = range(len(METHODS))
#: The methods of findings; ListJobs is reported apart, because a node of a monolith lists only its own jobs.
PRIMARY = (SUBMIT, STATUS, RESULT, CANCEL)

CONCURRENCIES = (1, 8, 32, 64)
JOB_DURATIONS_MS = (0, 10, 100)
KINDS = ("submit-only", "read-heavy", "life-cycle")
RUNS_MIN = 3

#: Weights of submit, status, result, cancel, list.
_MIXES: Mapping[str, tuple[int, ...]] = {
    "submit-only": (1, 0, 0, 0, 0),
    "read-heavy": (10, 55, 25, 5, 5),
    "life-cycle": (),
}


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """One way to load a topology.

    An empty mix means whole life cycles: submit, poll until the job has ended, fetch the result.
    """

    name: str
    kind: str
    mix: tuple[int, ...] = ()
    #: In a closed loop: requests or life cycles in flight, over all client processes.
    concurrency: int = 8
    #: In an open loop: how many begin per second, independent of responses; 0 means a closed loop.
    rate: float = 0.0
    job_ms: int = 0
    #: The share of submits that carry a request id.
    request_ids: float = 0.0
    has_fault: bool = False
    duration_s: float = 4.0
    warm_up_s: float = 1.0

    @property
    def is_open(self) -> bool:
        return self.rate > 0

    @property
    def is_life_cycle(self) -> bool:
        return not self.mix


class ComparisonPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Topologies, workloads and the number of runs."""

    topologies: tuple[str, ...]
    groups: tuple[tuple[Workload, ...], ...]
    runs: int = RUNS_MIN
    seed: int = 1
    clients: int = 2
    #: Jobs whose messages are counted in a separate run; 0 counts none.
    counted_jobs: int = 500

    @property
    def workloads(self) -> list[Workload]:
        return [workload for group in self.groups for workload in group]

    def turns(self) -> Iterator[tuple[int, tuple[Workload, ...], str]]:
        """Run, group and topology; topologies take turns."""
        for run, order in orders(self.topologies, self.runs):
            for group in self.groups:
                for topology in order:
                    yield run, group, topology


def closed(kind: str, concurrency: int, job_ms: int, *, duration_s: float, warm_up_s: float) -> Workload:
    """A workload with a fixed number in flight."""
    return Workload(
        name=f"{kind} c{concurrency} {job_ms}ms",
        kind=kind,
        mix=_MIXES[kind],
        concurrency=concurrency,
        job_ms=job_ms,
        request_ids=0.5 if kind == "read-heavy" else 0.0,
        duration_s=duration_s,
        warm_up_s=warm_up_s,
    )


def opened(kind: str, rate: float, job_ms: int, *, duration_s: float, warm_up_s: float) -> Workload:
    """A workload that begins this many per second."""
    like = closed(kind, 0, job_ms, duration_s=duration_s, warm_up_s=warm_up_s)
    return msgspec.structs.replace(like, name=f"{kind} open {rate:g}/s {job_ms}ms", rate=rate)


def through_fault(rate: float, job_ms: int, *, duration_s: float, warm_up_s: float) -> Workload:
    """Life cycles during which a process is killed half-way; an open loop, which does not hide a stall."""
    like = opened("life-cycle", rate, job_ms, duration_s=duration_s, warm_up_s=warm_up_s)
    return msgspec.structs.replace(like, name=f"fault open {rate:g}/s {job_ms}ms", kind="fault", has_fault=True)


def quick_groups() -> tuple[tuple[Workload, ...], ...]:
    """Every kind once or twice, on the same processes, in less than two minutes for two topologies."""
    span = {"duration_s": 0.7, "warm_up_s": 0.2}
    return (
        (
            closed("life-cycle", 1, 0, **span),
            closed("life-cycle", 8, 0, **span),
            closed("read-heavy", 8, 0, **span),
            closed("submit-only", 8, 0, **span),
            through_fault(20, 10, duration_s=3.0, warm_up_s=0.2),
        ),
    )


def default_groups() -> tuple[tuple[Workload, ...], ...]:
    """Every factor varied alone: concurrency, job duration, mix, open loop, fault; each on new processes."""
    span = {"duration_s": 4.0, "warm_up_s": 1.0}
    life = [closed("life-cycle", concurrency, 0, **span) for concurrency in CONCURRENCIES]
    reads = [closed("read-heavy", concurrency, 0, **span) for concurrency in CONCURRENCIES]
    others = [
        closed("life-cycle", 32, 10, **span),
        closed("life-cycle", 32, 100, **span),
        closed("submit-only", 32, 0, **span),
        opened("read-heavy", 100, 0, **span),
        through_fault(20, 10, duration_s=30.0, warm_up_s=1.0),
    ]
    return tuple((workload,) for workload in (*life, *reads, *others))


def full_groups() -> tuple[tuple[Workload, ...], ...]:
    """Every kind with every concurrency and every job duration."""
    span = {"duration_s": 8.0, "warm_up_s": 2.0}
    grid = [
        closed(kind, concurrency, job_ms, **span)
        for kind in KINDS
        for job_ms in JOB_DURATIONS_MS
        for concurrency in CONCURRENCIES
    ]
    others = [opened("read-heavy", 100, 0, **span), through_fault(20, 10, duration_s=40.0, warm_up_s=2.0)]
    return tuple((workload,) for workload in (*grid, *others))


def seconds_of(plan: ComparisonPlan, start_s: float = 5.0) -> float:
    """The approximate duration of a plan; `start_s` is the time to start and end the processes of a topology."""
    loads = sum(workload.duration_s + workload.warm_up_s + 1.0 for workload in plan.workloads)
    counting = len(plan.topologies) * (start_s + 3.0) if plan.counted_jobs else 0.0
    return plan.runs * len(plan.topologies) * (loads + start_s * len(plan.groups)) + counting


def custom_groups(  # noqa: PLR0913 - one parameter a factor
    *,
    kinds: tuple[str, ...],
    concurrencies: tuple[int, ...],
    job_durations_ms: tuple[int, ...],
    rates: tuple[float, ...],
    mix: tuple[int, ...],
    duration_s: float,
    warm_up_s: float,
    fault_s: float,
) -> tuple[tuple[Workload, ...], ...]:
    """Custom workloads: every combination, closed loops and open ones, and a fault of `fault_s` if not 0."""
    span = {"duration_s": duration_s, "warm_up_s": warm_up_s}
    found: list[Workload] = []
    for kind in kinds:
        _check_kind(kind)
        for job_ms in job_durations_ms:
            found += [closed(kind, concurrency, job_ms, **span) for concurrency in concurrencies]
            found += [opened(kind, rate, job_ms, **span) for rate in rates]
    if mix:
        found = [msgspec.structs.replace(one, mix=mix) if one.mix else one for one in found]
    if fault_s:
        found.append(through_fault(rates[0] if rates else 20, 10, duration_s=fault_s, warm_up_s=warm_up_s))
    return tuple((workload,) for workload in found)


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise InvalidArgumentError(f"a workload must be one of {', '.join(KINDS)}, got {kind!r}")
