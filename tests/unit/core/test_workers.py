"""The registry of workers: soft state that decides nothing about jobs."""

from holdfast.core.workers import WorkerRegistry, beat_ms


def test_worker_is_silent_only_after_its_timeout() -> None:
    """A worker is silent one millisecond after its timeout, and not before."""
    registry = WorkerRegistry(4_000)
    registry.hear("w1", 1_000)
    assert not registry.is_silent("w1", 5_000)
    assert registry.is_silent("w1", 5_001)


def test_worker_that_was_never_heard_is_silent() -> None:
    """A worker that never sent anything counts as silent."""
    assert WorkerRegistry(4_000).is_silent("w1", 0)


def test_second_heartbeat_keeps_slots_and_routes() -> None:
    """A second heartbeat updates the time and keeps slots and routes."""
    registry = WorkerRegistry(4_000)
    registry.hear("w1", 0).slots = 8
    assert registry.hear("w1", 10).slots == 8
    assert [info.heard_ms for info in registry.all()] == [10]


def test_silent_workers_are_forgotten_unless_they_stream() -> None:
    """A worker on a stream stays registered for as long as its stream, and other workers go when they are silent."""
    registry = WorkerRegistry(4_000)
    registry.hear("streaming", 0).is_streaming = True
    registry.hear("silent", 0)
    registry.hear("heard", 3_000)
    assert registry.forget_silent(5_000) == ["silent"]
    assert [info.worker_id for info in registry.all()] == ["streaming", "heard"]


def test_forgetting_a_worker_twice_is_harmless() -> None:
    """A worker that is gone can be removed again."""
    registry = WorkerRegistry(4_000)
    registry.hear("w1", 0)
    for _ in range(2):
        registry.forget("w1")
    assert registry.get("w1") is None


def test_short_lease_is_kept_by_oftener_heartbeats() -> None:
    """The heartbeat interval is a third of the lease, or the setting if that is shorter."""
    assert (beat_ms(1_000, 30_000), beat_ms(1_000, 600), beat_ms(1_000, 2)) == (1_000, 200, 1)
