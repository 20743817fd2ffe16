"""The embedded arena: a server and two workers."""

from pathlib import Path

import pytest

from holdfast.lab.torture.arenas import arena_of
from tests.integration.torture_arenas.trying import try_out


@pytest.mark.slow
@pytest.mark.parametrize("role", ["server", "worker"])
async def test_kill_in_the_embedded_arena_loses_nothing(tmp_path: Path, role: str) -> None:
    """Whoever of the two roles is killed, every job ends once, and nobody is left behind."""
    await try_out(arena_of("embedded", tmp_path), role)
