"""Repeated kill -9 of the server while clients wait and workers run jobs; KILLS is the number of kills."""

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
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


@pytest.mark.slow
@pytest.mark.timeout(240 + 10 * KILLS)
def test_kills_lose_nothing_that_was_acknowledged(short_path: Path) -> None:
    """After kills with responses in flight, every acknowledged job exists once under its key and ends once."""
    besieged("embedded", short_path, {"kill server": KILLS}, SEED)


def test_server_killed_while_it_starts_loses_nothing(fleet: Fleet) -> None:
    """A server that is killed at any instant of its recovery leaves a directory from which the next one starts."""
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
