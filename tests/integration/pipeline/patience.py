"""Lines between roles of a test's own process, and to its database, on which nothing is late unless a test says so."""

import pytest

from holdfast.core.state_change import LogChanges
from holdfast.topologies.pipeline.backend.http_client import RoleConnections
from holdfast.topologies.pipeline.postgres import connections
from holdfast.topologies.pipeline.postgres.database import PostgresStore

#: Longer than a busy machine stands still: roles that are away refuse at once, and are not waited for.
PATIENCE_S = 30.0
#: As long as a program waits for a connection.
HURRY_S = connections._ACQUIRE_S


class PatientLines(RoleConnections):
    """What a role would take for the silence of another is here that of the machine, and waited for."""

    async def _call(
        self, method: str, address: str, path: str, body: bytes | None, kind: str, deadline_s: float
    ) -> bytes:
        return await super()._call(method, address, path, body, kind, max(deadline_s, PATIENCE_S))


async def open_patiently(url: str, *, pool_size: int = 8, log: LogChanges | None = None) -> PostgresStore:
    """A store that neither gives up nor is given up because this process stands still in the middle of something."""
    lasting = tuple(one for one in connections._SETTINGS if not one.startswith("idle_in_transaction"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "_ACQUIRE_S", PATIENCE_S)
        patch.setattr(connections, "_CONNECTING", {**connections._CONNECTING, "connect_timeout": int(PATIENCE_S)})
        patch.setattr(connections, "_SETTINGS", lasting)
        statement_ms = int(1_000 * PATIENCE_S)
        database = connections.Database(url, pool_size=pool_size, name="holdfast", statement_ms=statement_ms, log=log)
    await database.open()
    return PostgresStore(database)


def wait_for_connections(store: PostgresStore, seconds: float) -> None:
    """From now on, whoever finds none is told so after this time: before an outage, and after it."""
    store.database._pool.timeout = seconds
