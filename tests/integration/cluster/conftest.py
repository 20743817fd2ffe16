"""Fixtures of the tests of the cluster's database: one server for all, and a database with two shards for each test."""

from collections.abc import Iterator

import psycopg
import pytest

from holdfast.process.private_postgres import PrivatePostgres
from holdfast.topologies.cluster.database.address import DatabaseAddress
from holdfast.topologies.cluster.database.creation import create_cluster
from holdfast.topologies.cluster.database.frame_reader import PostgresFrameReader
from holdfast.topologies.cluster.database.frame_writer import PostgresFrameWriter
from holdfast.topologies.cluster.database.registry import PostgresRegistry
from tests.integration.cluster.cluster_work import LIMIT_MS, lead
from tests.postgres import execute, fresh_database


@pytest.fixture(scope="session")
def cluster_template(postgres: PrivatePostgres) -> str:
    """The name of a database with an empty cluster of two shards."""
    name = "cluster_template"
    execute(postgres, f'CREATE DATABASE "{name}"')
    create_cluster(DatabaseAddress(url=postgres.url(name)), shards=2, cluster_id=bytes(range(16)))
    return name


@pytest.fixture
def cluster(postgres: PrivatePostgres, cluster_template: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database with an empty cluster."""
    with fresh_database(postgres, cluster_template, request.node.name) as url:
        yield url


@pytest.fixture
def address(cluster: str) -> DatabaseAddress:
    """The address of the cluster."""
    return DatabaseAddress(url=cluster, limit_ms=LIMIT_MS)


@pytest.fixture
def admin(cluster: str) -> Iterator[psycopg.Connection]:
    """A connection of the test's own, without the layer under test."""
    with psycopg.connect(cluster, autocommit=True) as connection:
        yield connection


@pytest.fixture
def registry(address: DatabaseAddress) -> Iterator[PostgresRegistry]:
    """The registry of nodes and leaders."""
    registry = PostgresRegistry(address)
    yield registry
    registry.close()


@pytest.fixture
def writer(address: DatabaseAddress, registry: PostgresRegistry) -> Iterator[PostgresFrameWriter]:
    """The writer of shard 0, which the epoch 1 leads."""
    assert lead(registry) == 1
    writer = PostgresFrameWriter(address, 0)
    yield writer
    writer.close()


@pytest.fixture
def reader(address: DatabaseAddress) -> Iterator[PostgresFrameReader]:
    """A reader of shard 0."""
    reader = PostgresFrameReader(address, 0)
    yield reader
    reader.close()
