"""kill -9 of nodes and of the front, one after the other, while clients wait for responses and slots run jobs."""

from pathlib import Path

import pytest

from holdfast_lab.torture.arenas.monolith import NODES
from tests.e2e.campaign import besieged, kills_each, seed

SEED = seed(20_261_115)
KILLS = kills_each(2)


@pytest.mark.slow
@pytest.mark.timeout(300 + 30 * KILLS)
def test_kills_of_every_node_lose_nothing_that_was_acknowledged(short_path: Path) -> None:
    """While nodes are killed repeatedly under load, every acknowledged job is kept by its owner and ends once."""
    besieged("monolith", short_path, {"kill node": NODES * KILLS, "kill front": KILLS}, SEED)
