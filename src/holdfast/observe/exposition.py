"""Prometheus metric families from a `Meter` and from the current queues."""

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
    """Memory use of the process, and the outcomes of its snapshots."""

    bytes_held: int
    bytes_held_max: int
    snapshots_made: int = 0
    snapshots_failed: int = 0
    snapshots_failed_in_a_row: int = 0


def _of_vitals(vitals: ProcessVitals) -> Iterator[Metric]:
    yield GaugeMetricFamily("holdfast_held_bytes", "Counted memory of held jobs.", value=vitals.bytes_held)
    yield GaugeMetricFamily(
        "holdfast_held_bytes_limit", "Submits are refused above this size of held jobs.", value=vitals.bytes_held_max
    )
    snapshots = CounterMetricFamily("holdfast_snapshots", "Snapshots, by outcome.", labels=("outcome",))
    snapshots.add_metric(("made",), vitals.snapshots_made)
    snapshots.add_metric(("failed",), vitals.snapshots_failed)
    yield snapshots
    yield GaugeMetricFamily(
        "holdfast_snapshot_failures_in_a_row",
        "Snapshots that failed since the last successful one.",
        value=vitals.snapshots_failed_in_a_row,
    )


class MeterCollector(Collector):
    """Creates the metric families of a scrape; must be called on the coordinator's thread.

    The families of queues are not included: `of_queues` creates them on any thread.
    """

    def __init__(self, meter: Meter, vitals: Callable[[], ProcessVitals], build: dict[str, str]) -> None:
        self._meter = meter
        self._vitals = vitals
        self._build = build

    def collect(self) -> Iterator[Metric]:
        """Yields every family with its current values."""
        yield from self._of_jobs()
        yield self._of_schedules()
        yield from self._of_the_journal()
        yield from _of_vitals(self._vitals())
        yield InfoMetricFamily("holdfast_build", "Version and build of this process.", value=self._build)
        yield GaugeMetricFamily("holdfast_leader", "Whether this process decides about its jobs.", value=1)

    def _of_jobs(self) -> Iterator[Metric]:
        submitted = CounterMetricFamily("holdfast_jobs_submitted", "Jobs that were accepted.", labels=_PAIR)
        finished = CounterMetricFamily(
            "holdfast_jobs_finished", "Jobs that ended, by outcome.", labels=(*_PAIR, "outcome")
        )
        wait = HistogramMetricFamily(
            "holdfast_job_wait_seconds", "Time from when a job could be granted until it was.", labels=_PAIR
        )
        run = HistogramMetricFamily("holdfast_job_run_seconds", "Run time of reported attempts.", labels=_PAIR)
        for series in self._meter.series():
            pair = (series.queue, series.type)
            submitted.add_metric(pair, series.submitted)
            for state, outcome in OUTCOMES.items():
                finished.add_metric((*pair, outcome), series.finished[state])
            wait.add_metric(pair, *buckets(series.wait_ms, 1_000))
            run.add_metric(pair, *buckets(series.run_ms, 1_000))
        yield from (submitted, finished, wait, run)

    def _of_schedules(self) -> Metric:
        text = "Ticks of schedules, by outcome."
        ticks = CounterMetricFamily("holdfast_schedule_ticks", text, labels=("outcome",))
        for outcome, count in self._meter.ticks.items():
            ticks.add_metric((outcome,), count)
        return ticks

    def _of_the_journal(self) -> Iterator[Metric]:
        meter = self._meter
        yield CounterMetricFamily(
            "holdfast_leases_expired",
            "Leases that expired without a heartbeat of their worker.",
            value=meter.leases_expired,
        )
        yield CounterMetricFamily(
            "holdfast_reports_fenced",
            "Reports that were ignored because they were late, stale or from another worker.",
            value=meter.reports_fenced,
        )
        sync = HistogramMetricFamily("holdfast_journal_sync_seconds", "Time to make a frame durable.")
        sync.add_metric((), *buckets(meter.sync_us, 1_000_000))
        yield sync
        yield CounterMetricFamily(
            "holdfast_journal_bytes", "Bytes of events that were made durable.", value=meter.journal_bytes
        )


class _CollectedFamilies(Collector):
    """Families that were collected before, so that another thread can render them."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def render(families: Iterable[Metric]) -> bytes:
    """Renders the exposition format; slow with many series, so it does not run on the coordinator's thread."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_CollectedFamilies(families))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def of_queues(queues: Sequence[QueueView]) -> Iterator[Metric]:
    """Yields the numbers of jobs and the oldest age per queue; never more than a few hundred series."""
    jobs = GaugeMetricFamily(
        "holdfast_queue_jobs", "Current number of jobs that have not ended.", labels=("queue", "state")
    )
    age = GaugeMetricFamily(
        "holdfast_queue_oldest_job_age_seconds",
        "Current age of the oldest job that could be granted.",
        labels=("queue",),
    )
    for queue in _bounded(queues):
        jobs.add_metric((queue.name, "ready"), queue.ready)
        jobs.add_metric((queue.name, "delayed"), queue.delayed)
        jobs.add_metric((queue.name, "running"), queue.running)
        age.add_metric((queue.name,), queue.oldest_age_ms / 1_000)
    yield from (jobs, age)


def _bounded(queues: Sequence[QueueView]) -> list[QueueView]:
    """Returns the longest queues, and the sum of the others as one queue."""
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
    """Returns cumulative buckets as in the exposition format, and the sum in seconds."""
    buckets: list[tuple[str, float]] = []
    below = 0
    for bound, count in zip((*distribution.bounds, None), distribution.counts, strict=True):
        below += count
        buckets.append(("+Inf" if bound is None else str(bound / per_second), below))
    return buckets, distribution.total / per_second
