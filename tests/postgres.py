"""A real PostgreSQL for tests: one server for each process of the test run, one database for each test that asks."""

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast.errors import FailedPreconditionError
from holdfast.topology.postgres_programs import INSTALLED, find_programs
from holdfast.topology.private_postgres import PrivatePostgres

#: Tests kill the server, never the machine.
QUICK = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "64MB"}

_numbers = itertools.count(1)


def require_postgres(installed: Path = INSTALLED) -> None:
    """Skips where there is no PostgreSQL; in continuous integration that is a failure."""
    try:
        find_programs(Path("/nowhere"), installed)
    except FailedPreconditionError as error:
        if os.environ.get("CI"):
            pytest.fail(error.message)
        pytest.skip(error.message)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivatePostgres]:
    """A server that tests share; whoever crashes it should have one of its own."""
    require_postgres()
    server = PrivatePostgres(tmp_path_factory.mktemp("postgres"), QUICK)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def database(postgres: PrivatePostgres, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty database of this test's own; it is dropped afterwards, whoever is still connected."""
    words = re.sub(r"\W+", "_", request.node.name.lower()).removeprefix("test_")[:40]
    name = f"t{next(_numbers)}_{words}"
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    yield postgres.url(name)
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())
