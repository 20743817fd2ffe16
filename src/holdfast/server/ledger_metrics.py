"""Metrics of a ledger server: counters and measurements."""

import asyncio
import platform
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast import __version__
from holdfast.core.overview import QueueCounts
from holdfast.ledger.coordinator import Coordinator
from holdfast.ledger.ports import Storage
from holdfast.ledger.snapshot_keeper import SnapshotHealth
from holdfast.observe.exposition import MeterCollector, ProcessVitals, of_queues, render
from holdfast.observe.metrics import JOB_BOUNDS_MS, OUTCOMES, Distribution, Meter

if TYPE_CHECKING:
    from holdfast.server.http.system import Totals


class MeasuredStorage:
    """A journal that measures its writes, and passes on everything else."""

    def __init__(self, storage: Storage, meter: Meter) -> None:
        self._storage = storage
        self._meter = meter
        self.reserve = storage.reserve

    @property
    def epoch(self) -> int:
        """The epoch of the journal."""
        return self._storage.epoch

    @property
    def end_position(self) -> int:
        """The last durable position."""
        return self._storage.end_position

    def write(self, body: bytes, count: int, digest: int, now_ms: int | None = None) -> int:
        """Makes one frame durable, and measures how long it took; passes on errors of the journal."""
        start_ns = time.perf_counter_ns()
        position = self._storage.write(body, count, digest, now_ms)
        self._meter.synced((time.perf_counter_ns() - start_ns) // 1_000, len(body))
        return position


class Metrics:
    """Counts from the start; can be read once there is a coordinator."""

    def __init__(self) -> None:
        self._meter = Meter()
        self._coordinator: Coordinator | None = None
        self._collector: MeterCollector | None = None

    def measured(self, storage: Storage) -> Storage:
        """Returns the storage with measured writes."""
        return MeasuredStorage(storage, self._meter)

    def watch(self, coordinator: Coordinator, snapshots: SnapshotHealth) -> None:
        """Starts counting the events of this coordinator."""
        coordinator.observers.append(self._meter)
        build = {"version": __version__, "python": platform.python_version()}
        self._coordinator = coordinator
        self._collector = MeterCollector(self._meter, lambda: _vitals(coordinator, snapshots), build)

    def totals(self) -> "Totals":
        """Returns the totals of all queues and types."""
        from holdfast.server.http.system import Totals  # noqa: PLC0415 - metrics alone need no HTTP

        series = self._meter.series()
        return Totals(
            submitted=sum(one.submitted for one in series),
            finished={name: sum(one.finished[state] for one in series) for state, name in OUTCOMES.items()},
            wait_ms_bounds=list(JOB_BOUNDS_MS),
            wait_ms_counts=_added([one.wait_ms for one in series]),
            run_ms_bounds=list(JOB_BOUNDS_MS),
            run_ms_counts=_added([one.run_ms for one in series]),
            leases_expired=self._meter.leases_expired,
            reports_fenced=self._meter.reports_fenced,
        )

    async def page(self) -> bytes:
        """Returns the metrics in Prometheus format."""
        assert self._collector is not None
        assert self._coordinator is not None
        families = list(self._collector.collect())
        counts = QueueCounts(self._coordinator.ledger, self._coordinator.time.now().log_ms)
        return await asyncio.to_thread(lambda: render([*families, *of_queues(list(counts.views()))]))


def _added(parts: Sequence[Distribution]) -> list[int]:
    """Adds up the counts of each bucket."""
    return [sum(counts) for counts in zip(*(part.counts for part in parts), strict=True)] or [0] * (
        len(JOB_BOUNDS_MS) + 1
    )


def _vitals(coordinator: Coordinator, snapshots: SnapshotHealth) -> ProcessVitals:
    ledger = coordinator.ledger
    return ProcessVitals(
        bytes_held=ledger.state.bytes_held,
        bytes_held_max=ledger.config.memory_bytes,
        snapshots_made=snapshots.made,
        snapshots_failed=snapshots.failed,
        snapshots_failed_in_a_row=snapshots.failed_in_a_row,
    )
