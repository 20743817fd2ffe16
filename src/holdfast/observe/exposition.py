"""The numbers of a `Meter`, and of the queues at this moment, as Prometheus families."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from holdfast.core.model import QueueMode
from holdfast.core.overview import QueueView
from holdfast.observe.metrics import OTHER, OUTCOMES, SERIES_MAX, Distribution, Meter

_PAIR = ("queue", "type")


class ProcessVitals(msgspec.Struct, frozen=True):
    """What the process holds, and how its snapshots ended."""

    bytes_held: int
    bytes_held_max: int
    snapshots_made: int = 0
    snapshots_failed: int = 0
    snapshots_failed_in_a_row: int = 0


def _of_vitals(vitals: ProcessVitals) -> Iterator[Metric]:
    yield GaugeMetricFamily("holdfast_held_bytes", "Memory that held jobs count for.", value=vitals.bytes_held)
    yield GaugeMetricFamily(
        "holdfast_held_bytes_limit", "Above this size of held jobs submits are refused.", value=vitals.bytes_held_max
    )
    snapshots = CounterMetricFamily("holdfast_snapshots", "Snapshots, by how they ended.", labels=("outcome",))
    snapshots.add_metric(("made",), vitals.snapshots_made)
    snapshots.add_metric(("failed",), vitals.snapshots_failed)
    yield snapshots
    yield GaugeMetricFamily(
        "holdfast_snapshot_failures_in_a_row",
        "Snapshots that failed since the last one that was made.",
        value=vitals.snapshots_failed_in_a_row,
    )


class MeterCollector(Collector):
    """Makes families whenever somebody asks; on the thread of whoever calls, which must be the coordinator's.

    Those of queues are not among them: `of_queues` makes them on any thread.
    """

    def __init__(self, meter: Meter, vitals: Callable[[], ProcessVitals], build: dict[str, str]) -> None:
        self._meter = meter
        self._vitals = vitals
        self._build = build

    def collect(self) -> Iterator[Metric]:
        """Every family, all of them as of now."""
        yield from self._of_jobs()
        yield self._of_schedules()
        yield from self._of_the_journal()
        yield from _of_vitals(self._vitals())
        yield InfoMetricFamily("holdfast_build", "Which build this is.", value=self._build)
        yield GaugeMetricFamily("holdfast_leader", "Whether this process decides about its jobs.", value=1)

    def _of_jobs(self) -> Iterator[Metric]:
        submitted = CounterMetricFamily("holdfast_jobs_submitted", "Jobs that were accepted.", labels=_PAIR)
        finished = CounterMetricFamily(
            "holdfast_jobs_finished", "Jobs that ended, by how they ended.", labels=(*_PAIR, "outcome")
        )
        wait = HistogramMetricFamily(
            "holdfast_job_wait_seconds", "From when a job could be granted until it was.", labels=_PAIR
        )
        run = HistogramMetricFamily("holdfast_job_run_seconds", "How long reported attempts ran.", labels=_PAIR)
        for series in self._meter.series():
            pair = (series.queue, series.type)
            submitted.add_metric(pair, series.submitted)
            for state, outcome in OUTCOMES.items():
                finished.add_metric((*pair, outcome), series.finished[state])
            wait.add_metric(pair, *buckets(series.wait_ms, 1_000))
            run.add_metric(pair, *buckets(series.run_ms, 1_000))
        yield from (submitted, finished, wait, run)

    def _of_schedules(self) -> Metric:
        text = "Ticks of schedules, by what became of them."
        ticks = CounterMetricFamily("holdfast_schedule_ticks", text, labels=("outcome",))
        for outcome, count in self._meter.ticks.items():
            ticks.add_metric((outcome,), count)
        return ticks

    def _of_the_journal(self) -> Iterator[Metric]:
        meter = self._meter
        yield CounterMetricFamily(
            "holdfast_leases_expired", "Leases that ran out before their worker spoke.", value=meter.leases_expired
        )
        yield CounterMetricFamily(
            "holdfast_reports_fenced",
            "Late, stale or foreign reports, all ignored.",
            value=meter.reports_fenced,
        )
        sync = HistogramMetricFamily("holdfast_journal_sync_seconds", "How long a frame took to become durable.")
        sync.add_metric((), *buckets(meter.sync_us, 1_000_000))
        yield sync
        yield CounterMetricFamily("holdfast_journal_bytes", "Bytes of events made durable.", value=meter.journal_bytes)


class _Collected(Collector):
    """Families that were made before, so that another thread may write them out."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def render(families: Iterable[Metric]) -> bytes:
    """The text of the exposition format; slow with many series, so not on the coordinator's thread."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(families))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def of_queues(queues: Sequence[QueueView]) -> Iterator[Metric]:
    """How many jobs wait and run in each queue, and how old the oldest is; never more than a few hundred series."""
    jobs = GaugeMetricFamily("holdfast_queue_jobs", "Jobs that have not ended, now.", labels=("queue", "state"))
    age = GaugeMetricFamily(
        "holdfast_queue_oldest_job_age_seconds", "Age of the oldest job that could be granted, now.", labels=("queue",)
    )
    for queue in _bounded(queues):
        jobs.add_metric((queue.name, "ready"), queue.ready)
        jobs.add_metric((queue.name, "delayed"), queue.delayed)
        jobs.add_metric((queue.name, "running"), queue.running)
        age.add_metric((queue.name,), queue.oldest_age_ms / 1_000)
    yield from (jobs, age)


def _bounded(queues: Sequence[QueueView]) -> list[QueueView]:
    """The longest queues one by one, the rest together."""
    if len(queues) <= SERIES_MAX:
        return list(queues)
    ranked = sorted(queues, key=lambda queue: queue.ready + queue.delayed + queue.running, reverse=True)
    rest = ranked[SERIES_MAX:]
    other = QueueView(
        OTHER,
        QueueMode.OPEN,
        "",
        sum(queue.ready for queue in rest),
        sum(queue.delayed for queue in rest),
        sum(queue.running for queue in rest),
        max(queue.oldest_age_ms for queue in rest),
    )
    return [*ranked[:SERIES_MAX], other]


def buckets(distribution: Distribution, per_second: int) -> tuple[list[tuple[str, float]], float]:
    """Buckets as the format has them, each holding those below it too, and the sum in seconds."""
    buckets: list[tuple[str, float]] = []
    below = 0
    for bound, count in zip((*distribution.bounds, None), distribution.counts, strict=True):
        below += count
        buckets.append(("+Inf" if bound is None else str(bound / per_second), below))
    return buckets, distribution.total / per_second
