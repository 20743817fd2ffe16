"""The memory limit of a server that cannot open a file."""

from pathlib import Path

import pytest

from holdfast.process import memory
from tests.integration.conftest import Start


async def test_server_knows_its_size_when_it_can_open_no_file(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server keeps the file with its resident size open, so that its memory limit does not need a descriptor."""
    server = await start()
    monkeypatch.setattr(memory, "_STATM", Path("/nowhere"))
    assert memory.resident_bytes() == 0
    watch = server.coordinator.memory
    assert watch._resident() > 1_000_000
    await server.stop()
    watch._looked_ms = None
    assert watch._resident() == 0
