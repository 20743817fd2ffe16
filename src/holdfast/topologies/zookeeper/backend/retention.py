"""How long finished jobs are kept: one node says it for all stewards, whoever started them.

A worker that is told nothing may be the steward, so the times stand in the ensemble and not in the settings of a
process. The gateway that starts last writes them.
"""

from holdfast.observe.logs import get_logger
from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection
from holdfast.topologies.zookeeper.backend.records import NodeRetention, encode, retention_of
from holdfast.topologies.zookeeper.backend.transactions import Create, Put, RefusedError


async def read_retention(connection: EnsembleConnection) -> NodeRetention:
    """The retention that stewards heed: the defaults as long as no gateway has written one."""
    return retention_of(await connection.get(connection.paths.retention))


async def write_retention(connection: EnsembleConnection, retention: NodeRetention) -> None:
    """Tells all stewards, from their next look on."""
    path, data = connection.paths.retention, encode(retention)
    node = await connection.get(path)
    if node is not None and node.data == data:
        return
    try:
        await connection.transact([Create(path, data)])
    except RefusedError:  # it is there
        await connection.transact([Put(path, data)])
        get_logger().warning(
            "retention_changed", retain_ms=retention.retain_ms, retain_failed_ms=retention.retain_failed_ms
        )
