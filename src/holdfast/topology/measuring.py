"""Metrics of a ledger server: what counts, what is measured, and the port where it can be read."""

import asyncio
import platform
import time
from collections.abc import Sequence

from holdfast import __version__
from holdfast.coordinator.loop import Coordinator
from holdfast.coordinator.ports import Storage
from holdfast.core.overview import QueueView, queue_stats
from holdfast.observe.endpoint import Endpoint
from holdfast.observe.exposition import MeterCollector, render
from holdfast.observe.metrics import Meter


class MeasuredStorage:
    """A journal whose writes are measured; everything else goes straight to it."""

    def __init__(self, storage: Storage, meter: Meter) -> None:
        self._storage = storage
        self._meter = meter
        self.reserve = storage.reserve

    @property
    def epoch(self) -> int:
        """The number of this opening."""
        return self._storage.epoch

    @property
    def end_position(self) -> int:
        """The last durable position."""
        return self._storage.end_position

    def write(self, body: bytes, count: int, digest: int, now_ms: int | None = None) -> int:
        """Makes one frame durable, and notes how long that took; a failure is the journal's own."""
        start_ns = time.perf_counter_ns()
        position = self._storage.write(body, count, digest, now_ms)
        self._meter.synced((time.perf_counter_ns() - start_ns) // 1_000, len(body))
        return position


class Metrics:
    """Counts from the beginning, serves once there is a coordinator."""

    def __init__(self) -> None:
        self._meter = Meter()
        self._collector: MeterCollector | None = None
        self._endpoint = Endpoint(self._page)

    def measured(self, storage: Storage) -> Storage:
        """The same storage, measured."""
        return MeasuredStorage(storage, self._meter)

    def watch(self, coordinator: Coordinator) -> None:
        """Counts what this coordinator does from now on."""
        coordinator.observers.append(self._meter)
        build = {"version": __version__, "python": platform.python_version()}
        self._collector = MeterCollector(self._meter, lambda: _queues(coordinator), build)

    async def start(self, host: str, port: int) -> str:
        """Serves, not ready yet, and returns the address; `UnavailableError` if the port cannot be had."""
        return await self._endpoint.start(host, port)

    def set_ready(self, *, is_ready: bool) -> None:
        """What `/readyz` says from now on."""
        self._endpoint.is_ready = is_ready

    async def stop(self) -> None:
        """Closes the port."""
        await self._endpoint.stop()

    async def _page(self) -> bytes:
        assert self._collector is not None
        families = list(self._collector.collect())
        return await asyncio.to_thread(render, families)


def _queues(coordinator: Coordinator) -> Sequence[QueueView]:
    return queue_stats(coordinator.ledger, coordinator.time.now().log_ms)
