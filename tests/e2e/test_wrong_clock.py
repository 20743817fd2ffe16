"""One start with a wall clock far ahead: no finished job is evicted, and the next start is correct again."""

from pathlib import Path

from holdfast.proto import taskqueue_public_pb2 as public
from holdfast_lab.torture.faults.clock_file import FileClock
from tests.e2e.fleet import Fleet

EIGHT_DAYS_MS = 8 * 86_400_000


def test_results_outlive_a_start_whose_clock_is_eight_days_ahead(fleet: Fleet, tmp_path: Path) -> None:
    """A finished job survives a start with the clock eight days ahead, and log time does not follow that clock."""
    clock = FileClock(tmp_path / "clock")
    serve = ("server", "--data", "data", "--port", "0")
    first = fleet.start(*serve, **clock.environment)
    wire = fleet.wire(first.ready()["grpc"])
    canceled = wire.new()
    wire.cancel(canceled)
    created_ms = wire.status(canceled).created_at_ms
    assert first.stop() == 0

    clock.step(EIGHT_DAYS_MS)
    second = fleet.start(*serve, **clock.environment)
    wire = fleet.wire(second.ready()["grpc"])
    assert wire.status(canceled).status == public.CANCELED
    (doubt,) = second.lines("clock_doubted")
    assert doubt["ahead_ms"] > EIGHT_DAYS_MS - 3_600_000
    assert wire.status(wire.new()).created_at_ms - created_ms < 3_600_000
    assert second.stop() == 0

    clock.step(0)
    third = fleet.start(*serve, **clock.environment)
    wire = fleet.wire(third.ready()["grpc"])
    assert wire.status(canceled).status == public.CANCELED
    assert wire.status(wire.new()).created_at_ms - created_ms < 3_600_000
    assert third.lines("clock_doubted") == []
    assert third.stop() == 0
