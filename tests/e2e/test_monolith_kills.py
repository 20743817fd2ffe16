"""kill -9 of nodes and of the front, one after the other, while clients wait for answers and slots work."""

from pathlib import Path

import pytest

from holdfast_lab.torture.arenas.monolith import NODES
from tests.e2e.campaign import besieged, kills_each, seed

SEED = seed(20_261_115)
KILLS = kills_each(2)


@pytest.mark.slow
@pytest.mark.timeout(300 + 30 * KILLS)
def test_kills_of_every_node_lose_nothing_that_was_acknowledged(short_path: Path) -> None:
    """Nodes are killed again and again under load; every acknowledged job is there, ended once, at its owner."""
    besieged("monolith", short_path, {"kill node": NODES * KILLS, "kill front": KILLS}, SEED)
