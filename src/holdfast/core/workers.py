"""WorkerRegistry: which workers are there, as far as anyone knows.

Soft state: it is lost in a crash and rebuilt from heartbeats. It is never read by `apply`, and a wrong entry can
only make scheduling worse, not wrong. Times are served time.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class WorkerInfo:
    """What one worker last said of itself."""

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
        """A sign of life; a worker not seen before is added."""
        info = self._workers.get(worker_id)
        if info is None:
            info = self._workers[worker_id] = WorkerInfo(worker_id)
        info.heard_ms = served_ms
        return info

    def get(self, worker_id: str) -> WorkerInfo | None:
        """What is known of a worker."""
        return self._workers.get(worker_id)

    def forget(self, worker_id: str) -> None:
        """The worker is gone."""
        self._workers.pop(worker_id, None)

    def is_silent(self, worker_id: str, served_ms: int) -> bool:
        """Whether it has missed its heartbeats, so that nothing new should go to it."""
        info = self._workers.get(worker_id)
        return info is None or served_ms - info.heard_ms > self.timeout_ms

    def forget_silent(self, served_ms: int) -> list[str]:
        """Drops workers that do not stream and have missed their heartbeats; returns their ids."""
        gone = [
            info.worker_id
            for info in self._workers.values()
            if not info.is_streaming and served_ms - info.heard_ms > self.timeout_ms
        ]
        for worker_id in gone:
            del self._workers[worker_id]
        return gone

    def all(self) -> list[WorkerInfo]:
        """Everyone, in order of arrival."""
        return list(self._workers.values())


def beat_ms(heartbeat_ms: int, lease_ms: int) -> int:
    """How often a worker should be heard: as the setting says, or oftener if two lost heartbeats would cost a lease."""
    return min(heartbeat_ms, max(1, lease_ms // 3))
