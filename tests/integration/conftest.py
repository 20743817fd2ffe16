"""Servers inside the test's own process, on its event loop."""

from collections.abc import AsyncIterator, Awaitable, Callable
from io import BytesIO
from pathlib import Path

import pytest

from holdfast.server.ledger_server import LedgerServer
from holdfast.settings import Settings

Start = Callable[..., Awaitable[LedgerServer]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts servers over the test's folder, and stops those that still run at the end."""
    running: list[LedgerServer] = []

    async def start_one(**settings: object) -> LedgerServer:
        chosen: dict[str, object] = {"data": str(tmp_path / "data"), "port": 0, "no_http": True, "log_level": "error"}
        server = LedgerServer(Settings(**(chosen | settings)), log_stream=BytesIO())  # type: ignore[arg-type]
        await server.start()
        running.append(server)
        return server

    yield start_one
    for server in running:
        if server.coordinator.is_serving:
            await server.stop()
