"""kill -9 of the server, again and again, while clients wait for answers and workers work; KILLS says how often."""

import random
import signal
from pathlib import Path

import pytest

from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.campaign import besieged, kills_each, seed
from tests.e2e.fleet import Fleet
from tests.e2e.wait_until import pause

SEED = seed(20_260_210)
KILLS = kills_each(10)


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """How the program is loaded is no part of these tests."""
    return loaded_fleet


@pytest.mark.slow
@pytest.mark.timeout(240 + 10 * KILLS)
def test_kills_lose_nothing_that_was_acknowledged(short_path: Path) -> None:
    """After kills with answers in flight every acknowledged job is there, ended once, under its key."""
    besieged("embedded", short_path, {"kill server": KILLS}, SEED)


def test_server_killed_while_it_starts_loses_nothing(fleet: Fleet) -> None:
    """A server killed at any instant of its recovery leaves a directory that the next one starts from."""
    server, wire = fleet.server()
    ids = [wire.new(key=str(number)) for number in range(20)]
    server.kill()
    draw = random.Random(SEED)
    for _ in range(KILLS // 2):
        starting = fleet.start("server", "--data", "data", "--port", "0")
        pause(draw.uniform(0, 0.15))
        starting.signal(signal.SIGKILL)
        starting.wait()
    _, wire = fleet.server()
    assert [wire.new(key=str(number)) for number in range(20)] == ids
    assert len(wire.all_jobs(public.QUEUED)) == 20
