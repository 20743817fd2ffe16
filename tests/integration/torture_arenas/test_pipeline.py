"""The pipeline arena: every role around one PostgreSQL."""

from pathlib import Path

import pytest

from holdfast.lab.torture.arenas import arena_of
from tests.integration.torture_arenas.trying import try_out
from tests.postgres import require_postgres


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_kill_in_the_pipeline_arena_loses_nothing(short_path: Path) -> None:
    """A worker is killed, every job ends once, and nobody is left behind."""
    require_postgres()
    await try_out(arena_of("pipeline", short_path), "worker")
