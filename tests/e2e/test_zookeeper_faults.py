"""Ensemble servers, workers and sessions fail while clients of the frozen contract submit, query and cancel."""

from pathlib import Path

import pytest

from tests.e2e.campaign import besieged, kills_each, seed
from tests.zookeeper import require_zookeeper

SEED = seed(20_261_117)
KILLS = kills_each(1)
#: A process that is stopped for longer than its session timeout has lost its session when it continues.
FAULTS = (
    *("engine-crash zookeeper-1", "engine-crash zookeeper-2", "engine-crash zookeeper-3", "engine-stop"),
    *("kill worker", "kill gateway", "stop worker", "stop gateway"),
)


@pytest.mark.slow
@pytest.mark.timeout(240 + 90 * KILLS)
def test_nothing_that_was_acknowledged_is_lost_by_any_fault(short_path: Path) -> None:
    """With any of these faults every acknowledged job ends once, and all servers have the same data."""
    require_zookeeper()
    besieged("zookeeper", short_path, dict.fromkeys(FAULTS, KILLS), SEED)
