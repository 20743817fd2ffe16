"""Servers of an earlier version, which have no method that declares their capabilities."""

import asyncio
import json
from pathlib import Path

import pytest

from holdfast.cli.stats import stats
from holdfast.client.access import Access
from holdfast.core.capabilities import Capability
from holdfast.server.backend import Backend
from holdfast.server.wire import connection
from holdfast.server.wire.calls import Table, table
from holdfast.settings import Settings
from holdfast.topologies.dashboard import Place, backend_of, connected, declared_by
from holdfast.wire.methods import CAPABILITIES
from tests.integration.conftest import Start


def older_table(backend: Backend) -> Table:
    """The methods of an earlier version."""
    return {name: method for name, method in table(backend).items() if name != CAPABILITIES.name}


@pytest.fixture(autouse=True)
def _older(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the servers of the test older ones."""
    monkeypatch.setattr(connection, "table", older_table)


async def test_stats_shows_the_numbers_of_an_older_server(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """`holdfast stats` prints the numbers of an older server without capabilities, as text and as JSON."""
    address = (await start()).address
    await asyncio.to_thread(stats, address)
    shown = capsys.readouterr().out
    assert "queued" in shown
    assert "capabilities" not in shown
    await asyncio.to_thread(stats, address, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["states"]["QUEUED"] == 0
    assert "capabilities" not in told


@pytest.mark.parametrize("kind", ["server", "directory", "nodes"])
async def test_dashboard_shows_an_older_server(start: Start, tmp_path: Path, kind: str) -> None:
    """The dashboard assumes the capabilities that every older server had."""
    server = await start()
    data = tmp_path / "data"
    places: dict[str, Place] = {"server": server.address, "directory": data, "nodes": [server.address]}
    async with connected(Settings(data=str(data)), places[kind], Access()) as client:
        backend = backend_of(client, await declared_by(client))
        assert backend.admin is not None
        assert (await backend.admin.stats()).states["QUEUED"] == 0
        assert backend.capabilities.has(Capability.FEED) == (kind != "nodes")
