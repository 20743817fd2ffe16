"""The tables of a report: the median of the runs, and the range over them in brackets."""

from collections.abc import Callable, Iterable

from holdfast_lab.compare.document import Table
from holdfast_lab.compare.figures import ComparisonTrial, Spread
from holdfast_lab.compare.messages import short
from holdfast_lab.compare.results import ComparisonResults
from holdfast_lab.compare.significance import METRICS
from holdfast_lab.compare.workloads import LIST, METHODS, PRIMARY
from holdfast_lab.measure.numbers import ABSENT, cell, number, spanned

_MIB = 1 << 20
_SHARES: tuple[tuple[str, Callable[[Spread], float]], ...] = (
    ("p50", lambda one: one.p50),
    ("p95", lambda one: one.p95),
    ("p99", lambda one: one.p99),
)


def throughput(results: ComparisonResults) -> Table:
    """Requests and jobs per second, a row for each workload."""
    names = results.plan.topologies
    header = ["workload", *(f"{name}, req/s" for name in names), *(f"{name}, jobs/s" for name in names)]
    rows = [
        [
            workload.name,
            *(cell([trial.requests_per_s for trial in results.of(name, workload.name)]) for name in names),
            *(
                cell([trial.jobs_per_s for trial in results.of(name, workload.name) if trial.submit_done])
                for name in names
            ),
        ]
        for workload in results.plan.workloads
    ]
    return Table(header, rows)


def submit_done(results: ComparisonResults) -> Table:
    """The time from the intended start of a submit to the end of its job."""
    life = [workload.name for workload in results.plan.workloads if workload.is_life_cycle]
    return _percentiles(results, [(name, "") for name in life], lambda trial, _: trial.submit_done)


def latencies(results: ComparisonResults) -> Table:
    """Latencies of each primary method in each workload."""
    return _percentiles(results, _cells(results, [METHODS[number] for number in PRIMARY]), _of_method)


def listing(results: ComparisonResults) -> Table:
    """Latencies of ListJobs."""
    return _percentiles(results, _cells(results, [METHODS[LIST]]), _of_method)


def _cells(results: ComparisonResults, methods: Iterable[str]) -> list[tuple[str, str]]:
    chosen = list(methods)
    return [(workload.name, method) for workload in results.plan.workloads for method in chosen]


def _of_method(trial: ComparisonTrial, method: str) -> Spread | None:
    return trial.methods[method].latency if method in trial.methods else None


def _percentiles(
    results: ComparisonResults, cells: Iterable[tuple[str, str]], take: Callable[[ComparisonTrial, str], Spread | None]
) -> Table:
    rows = []
    has_methods = False
    for workload, method in cells:
        for topology in results.plan.topologies:
            spreads = [one for trial in results.of(topology, workload) if (one := take(trial, method))]
            if spreads:
                has_methods = has_methods or bool(method)
                shares = [cell([read(one) for one in spreads]) for _, read in _SHARES]
                rows.append([workload, method, topology, *shares, number(max(one.worst for one in spreads))])
    header = ["workload", "method", "topology", *(f"{name}, ms" for name, _ in _SHARES), "worst, ms"]
    if not has_methods:
        return Table([header[0], *header[2:]], [[row[0], *row[2:]] for row in rows], words=2)
    return Table(header, rows, words=3)


def usage(results: ComparisonResults) -> Table:
    """CPU time and memory of each role, over all steady workloads of a run."""
    rows = []
    for topology in results.plan.topologies:
        for workload in results.plan.workloads:
            trials = results.of(topology, workload.name)
            rows += [
                [workload.name, topology, role, *_used(trials, role)]
                for role in dict.fromkeys(role for trial in trials for role in trial.usage)
            ]
    header = ["workload", "topology", "role", "processes", "CPU, s per s", "memory, MiB"]
    return Table(header, sorted(rows, key=lambda row: _order(results, row)), words=3)


def _order(results: ComparisonResults, row: list[str]) -> tuple[int, int]:
    workloads = [workload.name for workload in results.plan.workloads]
    return workloads.index(row[0]), results.plan.topologies.index(row[1])


def _used(trials: Iterable[ComparisonTrial], role: str) -> list[str]:
    ours = [(trial.usage[role], trial.duration_s) for trial in trials if role in trial.usage]
    return [
        spanned([float(one.processes) for one, _ in ours]),
        cell([one.cpu_s / seconds for one, seconds in ours]),
        cell([one.memory_bytes / _MIB for one, _ in ours]),
    ]


def costs(results: ComparisonResults) -> Table:
    """CPU time per unit of work, and memory, of all processes together."""
    chosen = [metric for metric in METRICS if metric.key in {"cpu", "memory"}]
    names = results.plan.topologies
    header = ["workload", *(f"{name}, {metric.key} ({metric.unit})" for metric in chosen for name in names)]
    rows = [
        [
            workload.name,
            *(
                cell([value for trial in results.of(name, workload.name) if (value := metric.read(trial)) is not None])
                for metric in chosen
                for name in names
            ),
        ]
        for workload in results.plan.workloads
        if not workload.has_fault
    ]
    return Table(header, rows)


def messages(results: ComparisonResults) -> Table:
    """Messages received and sent for a job, by method."""
    rows = []
    for one in results.messages:
        if one.refusal:
            rows.append([one.topology, one.refusal, ABSENT])
            continue
        rows += [[one.topology, short(name), number(count / one.jobs)] for name, count in one.by_method.items()]
        rows.append([one.topology, "**together**", number(one.per_job)])
    return Table(["topology", "method", "messages per job"], rows, words=2)


def errors(results: ComparisonResults) -> Table:
    """Failed requests, and jobs without a known end."""
    rows = []
    for topology in results.plan.topologies:
        for workload in results.plan.workloads:
            trials = results.of(topology, workload.name)
            asked, failed = sum(one.asked for one in trials), sum(sum(one.errors.values()) for one in trials)
            lost, waiting = (sum(one.jobs.get(word, 0) for one in trials) for word in ("lost", "given up"))
            refused = sum(
                1 for one in results.trials if (one.topology, one.workload) == (topology, workload.name) and one.refusal
            )
            rows.append([workload.name, topology, *map(number, (len(trials), refused, asked, failed, lost, waiting))])
    header = ["workload", "topology", "runs", "refused runs", "requests", "failed", "jobs lost", "jobs not over"]
    return Table(header, rows, words=2)
