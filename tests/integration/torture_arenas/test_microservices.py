"""The microservices arena: six services."""

from pathlib import Path

import pytest

from holdfast.lab.torture.arenas import arena_of
from tests.integration.torture_arenas.trying import try_out


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_kill_in_the_microservices_arena_loses_nothing(short_path: Path) -> None:
    """The job service is killed, every job ends once, and nobody is left behind."""
    await try_out(arena_of("microservices", short_path), "job")
