"""Connections between roles in the test's process, and to its database, with long deadlines."""

import pytest

from holdfast.core.state_change import LogChanges
from holdfast.topologies.pipeline.backend.http_client import RoleConnections
from holdfast.topologies.pipeline.postgres import connections
from holdfast.topologies.pipeline.postgres.database import PostgresStore

#: Longer than any pause of a busy machine; a role that is down refuses at once.
PATIENCE_S = 30.0
#: The time for which the product waits for a connection.
HURRY_S = connections._ACQUIRE_S


class PatientLines(RoleConnections):
    """Connections with long deadlines, because a late reply here is a pause of the machine."""

    async def _call(
        self, method: str, address: str, path: str, body: bytes | None, kind: str, deadline_s: float
    ) -> bytes:
        return await super()._call(method, address, path, body, kind, max(deadline_s, PATIENCE_S))


async def open_patiently(url: str, *, pool_size: int = 8, log: LogChanges | None = None) -> PostgresStore:
    """Opens a store with long deadlines, whose transactions the database does not end when this process pauses."""
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
    """Sets the time after which a caller without a free connection fails; for use before and after an outage."""
    store.database._pool.timeout = seconds
