"""Synthetic results with known findings."""

from collections.abc import Mapping, Sequence

from holdfast_lab.compare.figures import ComparisonTrial, MethodFigures, Spread, spread
from holdfast_lab.compare.messages import Messages
from holdfast_lab.compare.results import ComparisonResults
from holdfast_lab.compare.workloads import ComparisonPlan, Workload, closed
from holdfast_lab.measure.process_tree import Usage

SPAN = {"duration_s": 1.0, "warm_up_s": 0.0}


def series(*concurrencies: int, kind: str = "read-heavy") -> list[Workload]:
    """Returns closed loops that differ only in their concurrency."""
    return [closed(kind, concurrency, 0, **SPAN) for concurrency in concurrencies]


def results(
    rates: Mapping[str, Mapping[str, Sequence[float]]],
    workloads: Sequence[Workload],
    *,
    errors: Mapping[str, int] | None = None,
    refused: Mapping[str, str] | None = None,
    messages: Sequence[Messages] = (),
) -> ComparisonResults:
    """Builds results; `rates` are by topology and workload, one per run; `errors` and `refused` are by topology."""
    trials = [
        trial(name, workload, run, rate, (errors or {}).get(name, 0))
        for name, cells in rates.items()
        for workload, values in cells.items()
        for run, rate in enumerate(values)
    ]
    for name, reason in (refused or {}).items():
        trials.append(ComparisonTrial(topology=name, workload=workloads[0].name, run=2, refusal=reason))
    plan = ComparisonPlan(topologies=tuple(rates), groups=tuple((one,) for one in workloads))
    return ComparisonResults(plan, {"command": "holdfast lab compare"}, trials, list(messages))


def trial(topology: str, workload: str, run: int, rate: float, errors: int = 0) -> ComparisonTrial:
    """Builds a trial whose figures all follow from its rate: twice the rate means half the latency."""
    took = distribution(1_000 / rate)
    failed = {"UNAVAILABLE": errors} if errors else {}
    methods = {name: MethodFigures(100, failed, took) for name in ("SubmitJob", "GetJobStatus")}
    is_life = workload.startswith(("life", "fault"))
    return ComparisonTrial(
        topology=topology,
        workload=workload,
        run=run,
        requests_per_s=rate,
        jobs_per_s=rate if is_life else 0.0,
        methods=methods,
        latency=took,
        submit_done=took if is_life else None,
        jobs={"done": 100} if is_life else {},
        usage={"server": Usage(1.0, 50 << 20, 1)},
        duration_s=1.0,
    )


def distribution(middle_ms: float) -> Spread:
    """Returns a spread around a middle value."""
    found = spread([middle_ms * (0.5 + step / 100) for step in range(101)])
    assert found is not None
    return found
