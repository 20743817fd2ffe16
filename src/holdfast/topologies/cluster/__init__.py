"""The cluster topology: ledgers whose journals are in PostgreSQL, led by one of several nodes at a time."""

from typing import Final

from msgspec.structs import replace

from holdfast.core.capabilities import LEDGER, MONOLITH, Capabilities

#: A cluster with one shard, which is the default.
CLUSTER: Final = replace(LEDGER, backend="cluster")
#: With several shards, which have no common positions and no common order.
SHARDED: Final = replace(MONOLITH, backend="cluster")


def capabilities_of(shards: int) -> Capabilities:
    """Returns the capabilities of a cluster with this number of shards."""
    return CLUSTER if shards == 1 else SHARDED
