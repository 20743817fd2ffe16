"""Retention of finished jobs: one node holds the times for all stewards.

The steward may be a worker, which does not know the settings of the gateway, so the times are stored in the ensemble.
The gateway that starts last writes them.
"""

from holdfast.observe.logs import get_logger
from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection
from holdfast.topologies.zookeeper.backend.records import NodeRetention, encode, retention_of
from holdfast.topologies.zookeeper.backend.transactions import Create, Put, RefusedError


async def read_retention(connection: EnsembleConnection) -> NodeRetention:
    """Returns the retention for stewards: the defaults until a gateway has written one."""
    return retention_of(await connection.get(connection.paths.retention))


async def write_retention(connection: EnsembleConnection, retention: NodeRetention) -> None:
    """Writes the retention; stewards apply it from their next cleanup on."""
    path, data = connection.paths.retention, encode(retention)
    node = await connection.get(path)
    if node is not None and node.data == data:
        return
    try:
        await connection.transact([Create(path, data)])
    except RefusedError:  # the node exists
        await connection.transact([Put(path, data)])
        get_logger().warning(
            "retention_changed", retain_ms=retention.retain_ms, retain_failed_ms=retention.retain_failed_ms
        )
