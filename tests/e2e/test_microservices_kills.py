"""kill -9 of every role of the microservices while clients of all interfaces submit, read, wait and cancel."""

from pathlib import Path

import pytest

from tests.e2e.campaign import besieged, kills_each, seed

SEED = seed(20_261_116)
KILLS = kills_each(1)
ROLES = ("gateway", "job", "queue", "coordinator", "result", "worker")


@pytest.mark.slow
@pytest.mark.timeout(300 + 60 * KILLS)
def test_kills_of_every_role_lose_nothing_that_was_acknowledged(short_path: Path) -> None:
    """While each of the six services is killed, every acknowledged job ends once, and no unexplained job exists."""
    besieged("microservices", short_path, {f"kill {role}": KILLS for role in ROLES}, SEED)
