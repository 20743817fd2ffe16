"""The embedded arena: a server and two workers."""

from pathlib import Path

import pytest

from holdfast.lab.torture.arenas import arena_of
from tests.integration.torture_arenas.trying import try_out


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_kill_in_the_embedded_arena_loses_nothing(tmp_path: Path) -> None:
    """The server is killed, every job ends once, and nobody is left behind."""
    await try_out(arena_of("embedded", tmp_path), "server")
