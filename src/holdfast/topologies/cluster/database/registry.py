"""`Registry` on PostgreSQL: each call is one statement, and leases are judged by the server's clock alone."""

from collections.abc import Mapping
from typing import Any

import msgspec
import psycopg

from holdfast.postgres.statements import statements
from holdfast.topologies.cluster.database.address import DatabaseAddress
from holdfast.topologies.cluster.database.failures import lost, meaning_of
from holdfast.topologies.cluster.database.session import DatabaseSession
from holdfast.topologies.cluster.ports import ClusterView, DatabaseRefusedError, NodeRecord

_SQL = statements(__package__, "registry")

#: The SQLSTATE of `holdfast.beat`.
_NAME_TAKEN = "HF001"


class PostgresRegistry:
    """Nodes and leaderships. One thread at a time calls it."""

    def __init__(self, address: DatabaseAddress) -> None:
        self._session = DatabaseSession(address)

    def beat(self, node: NodeRecord, leads: Mapping[int, int], lease_ms: int) -> ClusterView:
        """Registers the node or renews its entry, renews the leases of the epochs that it leads; returns everything."""
        arguments: dict[str, Any] = {
            "name": node.name,
            "incarnation": node.incarnation,
            "record": msgspec.json.encode(node).decode(),
            "shards": list(leads.keys()),
            "epochs": list(leads.values()),
            "lease_ms": lease_ms,
        }
        try:
            reply = self._session.ask(_SQL["beat"], arguments)
        except psycopg.Error as error:
            if error.sqlstate == _NAME_TAKEN:
                raise _name_taken(node.name) from None
            raise meaning_of(error) from error
        if not reply.is_confirmed:
            raise lost("the beat may not have been replicated")
        return msgspec.json.decode(reply.rows[0][0], type=ClusterView)

    def take(self, shard: int, seen_epoch: int, node: NodeRecord, lease_ms: int) -> int | None:
        """Makes the node the leader of a shard and returns the new epoch, or None if it cannot lead now."""
        arguments: dict[str, Any] = {"shard": shard, "seen_epoch": seen_epoch, "lease_ms": lease_ms}
        ((epoch,),) = self._session.change(
            _SQL["take"], {**arguments, "name": node.name, "incarnation": node.incarnation}
        )
        return None if epoch is None else int(epoch)

    def hand_over(self, shard: int, epoch: int, successor: str) -> bool:
        """Ends the lease of an epoch now, and names the node that should take over; False if another epoch leads."""
        arguments = {"shard": shard, "epoch": epoch, "successor": successor}
        ((is_done,),) = self._session.change(_SQL["hand_over"], arguments)
        return bool(is_done)

    def leave(self, node: NodeRecord) -> None:
        """Removes the entry of the node, if this incarnation still has it."""
        self._session.change(_SQL["leave"], {"name": node.name, "incarnation": node.incarnation})

    def close(self) -> None:
        """Closes the connection; harmless if there is none."""
        self._session.close()


def _name_taken(name: str) -> DatabaseRefusedError:
    message = f"expected to be the only node {name!r}, found another living process with this name; choose another name"
    return DatabaseRefusedError(message, reason="NODE_NAME_TAKEN")
