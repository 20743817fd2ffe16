"""Creation of a cluster in a database: its schema, its id and its shards, once."""

import os

import msgspec
import psycopg

from holdfast.errors import InvalidArgumentError
from holdfast.postgres.migrator import migrate, read_migrations
from holdfast.postgres.statements import statements
from holdfast.topologies.cluster.database.address import DatabaseAddress
from holdfast.topologies.cluster.database.failures import meaning_of
from holdfast.topologies.cluster.database.server_checks import check_server
from holdfast.topologies.cluster.ports import DatabaseRefusedError

_SQL = statements(__package__, "creation")

#: As in the schema: a client connects to the leader of every shard.
SHARDS_MAX = 1024


class ClusterIdentity(msgspec.Struct, frozen=True):
    """The id and the number of shards of a cluster, which never change."""

    cluster_id: bytes
    shards: int


def open_cluster(address: DatabaseAddress, shards: int | None = None, cluster_id: bytes = b"") -> ClusterIdentity:
    """Checks the server, migrates the database, and returns the cluster, which is created if there is none."""
    check_server(address)
    return create_cluster(address, shards, cluster_id)


def create_cluster(address: DatabaseAddress, shards: int | None = None, cluster_id: bytes = b"") -> ClusterIdentity:
    """Migrates the database, creates the cluster if there is none, and returns its identity.

    `shards` is 1 unless given; `DatabaseRefusedError` if the cluster has another number or another id.
    """
    if shards is not None and not 1 <= shards <= SHARDS_MAX:
        message = f"the number of shards must be from 1 to {SHARDS_MAX}, got {shards}"
        raise InvalidArgumentError(message, reason="SHARDS_INVALID")
    try:
        with psycopg.connect(address.conninfo(), autocommit=True) as connection, connection.transaction():
            migrate(connection, read_migrations(__package__))
            found = connection.execute(_SQL["identity"]).fetchone()
            if found is None:
                made = {"cluster_id": cluster_id or os.urandom(16), "shards": 1 if shards is None else shards}
                connection.execute(_SQL["create"], made)
                found = (made["cluster_id"], made["shards"])
    except psycopg.Error as error:
        raise meaning_of(error) from error
    identity = ClusterIdentity(*found)
    _check(identity, shards, cluster_id)
    return identity


def _check(found: ClusterIdentity, shards: int | None, cluster_id: bytes) -> None:
    if shards is not None and shards != found.shards:
        message = (
            f"expected a cluster of {shards} shards, found one of {found.shards}, which never changes; omit --shards"
        )
        raise DatabaseRefusedError(message, reason="SHARDS_DIFFER")
    if cluster_id and cluster_id != found.cluster_id:
        message = f"expected the cluster {cluster_id.hex()}, found {found.cluster_id.hex()}; name another database"
        raise DatabaseRefusedError(message, reason="CLUSTER_DIFFERS")
