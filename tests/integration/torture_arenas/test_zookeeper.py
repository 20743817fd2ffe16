"""The zookeeper arena: an ensemble, a gateway and two workers."""

from pathlib import Path

import pytest

from holdfast.lab.torture.arenas import arena_of
from tests.integration.torture_arenas.trying import try_out
from tests.zookeeper import require_zookeeper


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_kill_in_the_zookeeper_arena_loses_nothing(short_path: Path) -> None:
    """A worker is killed, every job ends once, and nobody is left behind."""
    require_zookeeper()
    await try_out(arena_of("zookeeper", short_path), "worker")
