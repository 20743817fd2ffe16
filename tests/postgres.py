"""A real PostgreSQL for tests: one server per process of the test run, one database per test."""

import asyncio
import contextlib
import itertools
import re
from collections.abc import Iterator

import psycopg
import pytest

from holdfast.process.private_postgres import PrivatePostgres
from holdfast.topologies.pipeline.postgres.database import open_store
from scripts.engines import POSTGRES
from tests.engines import require

#: Tests kill the server, but never the machine.
QUICK = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "64MB"}

_numbers = itertools.count(1)


def require_postgres() -> None:
    """Skip or fail the current test if PostgreSQL is missing."""
    require(POSTGRES)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivatePostgres]:
    """A server that tests share; a test that crashes a server starts one of its own."""
    require_postgres()
    server = PrivatePostgres(tmp_path_factory.mktemp("postgres"), QUICK)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def template(postgres: PrivatePostgres) -> str:
    """The name of an empty, migrated database; copying it is much faster than creating one."""
    name = "template"
    execute(postgres, f'CREATE DATABASE "{name}"')

    async def migrate() -> None:
        await (await open_store(postgres.url(name))).close()

    asyncio.run(migrate())
    return name


def execute(postgres: PrivatePostgres, statement: str) -> None:
    """Runs a statement in the server's own database."""
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as connection:
        connection.execute(statement.encode())


@contextlib.contextmanager
def fresh_database(postgres: PrivatePostgres, template: str, purpose: str = "") -> Iterator[str]:
    """Yields the URL of a new database, which is dropped at the end of the block."""
    words = re.sub(r"\W+", "_", purpose.lower()).removeprefix("test_")[:40]
    name = f"t{next(_numbers)}_{words}"
    execute(postgres, f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    try:
        yield postgres.url(name)
    finally:
        execute(postgres, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def database(postgres: PrivatePostgres, template: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a migrated database of this test; it is dropped afterwards, even with open connections."""
    with fresh_database(postgres, template, request.node.name) as url:
        yield url


@pytest.fixture
def bare_database(postgres: PrivatePostgres, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty database without migrations."""
    with fresh_database(postgres, "template1", request.node.name) as url:
        yield url
