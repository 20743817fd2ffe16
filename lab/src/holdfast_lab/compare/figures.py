"""The figures of one trial, computed from its records; exact, because every request is recorded.

Rates count requests that succeeded inside the window. Latencies are of successful requests whose intended start is
inside it, from that start on; failed requests are counted apart.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence

import grpc
import msgspec

from holdfast.proto import taskqueue_public_pb2 as pb
from holdfast_lab.compare.records import GIVEN_UP, LOST, OK, JobRun, Request
from holdfast_lab.compare.trial import TrialMeasurement
from holdfast_lab.compare.workloads import METHODS, PRIMARY, Workload
from holdfast_lab.measure.numbers import percentile
from holdfast_lab.measure.process_tree import Usage

_MS = 1e6
_NS = 1e9
_CODES = {code.value[0]: code.name for code in grpc.StatusCode}
_ENDS = {pb.DONE: "done", pb.FAILED: "failed", pb.CANCELED: "canceled", GIVEN_UP: "given up", LOST: "lost"}
#: The stored points of a distribution's curve; denser where it is steep.
SHARES = tuple(sorted({*(n / 100 for n in range(100)), 0.995, 0.999, 1.0}))
BIN_S = 0.25


class Spread(msgspec.Struct, frozen=True):
    """A distribution in milliseconds."""

    count: int
    p50: float
    p95: float
    p99: float
    worst: float
    #: The values at SHARES.
    curve: list[float]


class MethodFigures(msgspec.Struct, frozen=True):
    """One method: successes, errors by code, and latencies."""

    ok: int
    errors: dict[str, int]
    latency: Spread | None


class TimelineStep(msgspec.Struct, frozen=True):
    """One step of a timeline, in seconds from the fault."""

    at_s: float
    finished: int
    failed: int
    #: The slowest submit→done of the jobs that began in this step; 0 if none did.
    slowest_ms: float


class FaultFigures(msgspec.Struct, frozen=True):
    """The effect of a fault."""

    role: str
    #: Seconds from the fault to the end of the load.
    load_s: float
    timeline: list[TimelineStep]
    #: The longest time after the fault in which no job finished.
    gap_s: float
    slowest_ms: float


class ComparisonTrial(msgspec.Struct, frozen=True, kw_only=True):
    """One trial. With a `refusal` there are no figures."""

    topology: str
    workload: str
    run: int
    refusal: str = ""
    requests_per_s: float = 0.0
    jobs_per_s: float = 0.0
    methods: dict[str, MethodFigures] = {}
    latency: Spread | None = None
    submit_done: Spread | None = None
    jobs: dict[str, int] = {}
    usage: dict[str, Usage] = {}
    #: Cores used by the clients, and by neither clients nor topology.
    client_cores: float = 0.0
    other_cores: float = 0.0
    duration_s: float = 0.0
    start_s: float = 0.0
    fault: FaultFigures | None = None
    #: Problems that do not affect the figures.
    troubles: list[str] = []

    @property
    def is_good(self) -> bool:
        return not self.refusal

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all processes of the topology."""
        return sum(one.cpu_s for one in self.usage.values())

    @property
    def memory_bytes(self) -> int:
        return sum(one.memory_bytes for one in self.usage.values())

    @property
    def errors(self) -> dict[str, int]:
        """Errors of all methods, by code."""
        return dict(sum((Counter(one.errors) for one in self.methods.values()), Counter()))

    @property
    def asked(self) -> int:
        """The number of requests, successful or not."""
        return sum(one.ok + sum(one.errors.values()) for one in self.methods.values())


def figures(
    topology: str, workload: Workload, run: int, measured: TrialMeasurement, *, start_s: float
) -> ComparisonTrial:
    """The figures of a trial."""
    begin, end = measured.begin, measured.end
    all_requests = list(measured.records.requests())
    requests = [one for one in all_requests if begin <= one.intended < end]
    all_jobs = list(measured.records.jobs())
    jobs = [one for one in all_jobs if begin <= one.intended < end]
    seconds = (end - begin) / _NS
    ended = sum(1 for one in all_requests if begin <= one.end < end and one.code == OK and one.method in PRIMARY)
    return ComparisonTrial(
        topology=topology,
        workload=workload.name,
        run=run,
        requests_per_s=ended / seconds,
        jobs_per_s=sum(1 for one in all_jobs if one.finished and begin <= one.seen < end) / seconds,
        methods=_by_method(requests),
        latency=_latency(one for one in requests if one.method in PRIMARY),
        submit_done=spread([_submit_done(one) for one in jobs if one.finished]),
        jobs=dict(Counter(_ENDS[one.status] for one in jobs)),
        usage=measured.costs.usage,
        client_cores=measured.costs.clients_s / seconds,
        other_cores=measured.costs.others_s / seconds,
        duration_s=seconds,
        start_s=start_s,
        fault=_fault(measured, all_requests, all_jobs),
    )


def spread(values: Iterable[float]) -> Spread | None:
    """The distribution of these milliseconds; None if there are none."""
    ordered = sorted(values)
    if not ordered:
        return None
    p50, p95, p99 = (percentile(ordered, share) for share in (0.5, 0.95, 0.99))
    curve = [round(percentile(ordered, share), 4) for share in SHARES]
    return Spread(len(ordered), p50, p95, p99, ordered[-1], curve)


def _by_method(requests: Sequence[Request]) -> dict[str, MethodFigures]:
    found = {}
    for number, name in enumerate(METHODS):
        ours = [one for one in requests if one.method == number]
        if ours:
            errors = Counter(_CODES.get(one.code, str(one.code)) for one in ours if one.code != OK)
            found[name] = MethodFigures(len(ours) - errors.total(), dict(errors), _latency(ours))
    return found


def _latency(requests: Iterable[Request]) -> Spread | None:
    return spread((one.end - one.intended) / _MS for one in requests if one.code == OK)


def _submit_done(job: JobRun) -> float:
    """Milliseconds from submit to end, at least 0: the end is known to the millisecond only."""
    return max(0.0, (job.finished - job.intended) / _MS)


def _fault(measured: TrialMeasurement, requests: Sequence[Request], jobs: Sequence[JobRun]) -> FaultFigures | None:
    if measured.fault is None:
        return None
    at, begin, end = measured.fault.at, measured.begin, measured.end
    gap_s = _longest_gap([one.finished for one in jobs if one.finished >= at], at, end)
    slowest = max((_submit_done(one) for one in jobs if one.finished and begin <= one.intended < end), default=0.0)
    return FaultFigures(
        measured.fault.role, (end - at) / _NS, _timeline(measured, requests, jobs), gap_s=gap_s, slowest_ms=slowest
    )


def _longest_gap(finishes: Iterable[int], at: int, end: int) -> float:
    """The longest time in seconds without a finish, from the fault or a finish under load on."""
    edges = [at, *sorted(finishes)]
    if edges[-1] < end:
        edges.append(end)
    return max(later - earlier for earlier, later in itertools.pairwise(edges) if earlier < end) / _NS


def _timeline(measured: TrialMeasurement, requests: Sequence[Request], jobs: Sequence[JobRun]) -> list[TimelineStep]:
    assert measured.fault is not None
    at = measured.fault.at
    latest = max(measured.end, *(one.finished for one in jobs), 0)
    first, last = _bin(measured.begin, at), _bin(latest, at) + 1
    finished = Counter(_bin(one.finished, at) for one in jobs if one.finished)
    failed = Counter(_bin(one.end, at) for one in requests if one.code != OK)
    slowest: dict[int, float] = {}
    for job in jobs:
        if job.finished:
            place = _bin(job.intended, at)
            slowest[place] = max(slowest.get(place, 0.0), _submit_done(job))
    return [
        TimelineStep(number * BIN_S, finished[number], failed[number], slowest.get(number, 0.0))
        for number in range(first + 1, last)  # the first step is shorter than the others
    ]


def _bin(moment: int, zero: int) -> int:
    return int((moment - zero) / _NS // BIN_S)
