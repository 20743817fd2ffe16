"""WorkerRegistry: the currently known workers.

Soft state: a crash loses it, and heartbeats rebuild it. `apply` never reads it. A wrong entry can make scheduling less
efficient but not incorrect. Times are served time.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class WorkerInfo:
    """The last reported data of one worker."""

    worker_id: str
    routes: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    slots: int = 1
    heard_ms: int = 0
    is_streaming: bool = False
    is_draining: bool = False


class WorkerRegistry:
    """Workers by id."""

    __slots__ = ("_workers", "timeout_ms")

    def __init__(self, timeout_ms: int) -> None:
        self._workers: dict[str, WorkerInfo] = {}
        self.timeout_ms = timeout_ms

    def hear(self, worker_id: str, served_ms: int) -> WorkerInfo:
        """Records a heartbeat; adds the worker if it is unknown."""
        info = self._workers.get(worker_id)
        if info is None:
            info = self._workers[worker_id] = WorkerInfo(worker_id)
        info.heard_ms = served_ms
        return info

    def get(self, worker_id: str) -> WorkerInfo | None:
        """The data of a worker, or None."""
        return self._workers.get(worker_id)

    def forget(self, worker_id: str) -> None:
        """Removes the worker."""
        self._workers.pop(worker_id, None)

    def is_silent(self, worker_id: str, served_ms: int) -> bool:
        """Whether the worker is unknown or has missed its heartbeats, so that it should get no new jobs."""
        info = self._workers.get(worker_id)
        return info is None or served_ms - info.heard_ms > self.timeout_ms

    def forget_silent(self, served_ms: int) -> list[str]:
        """Removes workers without a stream that have missed their heartbeats; returns their ids."""
        gone = [
            info.worker_id
            for info in self._workers.values()
            if not info.is_streaming and served_ms - info.heard_ms > self.timeout_ms
        ]
        for worker_id in gone:
            del self._workers[worker_id]
        return gone

    def all(self) -> list[WorkerInfo]:
        """All workers, in order of arrival."""
        return list(self._workers.values())


def beat_ms(heartbeat_ms: int, lease_ms: int) -> int:
    """The heartbeat interval: the setting, or less so that a lease survives two lost heartbeats."""
    return min(heartbeat_ms, max(1, lease_ms // 3))
