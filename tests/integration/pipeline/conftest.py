"""A PostgreSQL of its own for each process of the test run, and a database of its own for each test."""

import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from holdfast.backends.pipeline.postgres.database import PostgresStore, open_store

_USER = "postgres"


def _as_server(command: list[str]) -> list[str]:
    """PostgreSQL refuses to run as root."""
    return (
        ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups", *command]
        if os.geteuid() == 0
        else command
    )


@dataclass(frozen=True)
class Cluster:
    """A private server."""

    programs: Path
    folder: Path
    port: int

    def url(self, database: str = "postgres") -> str:
        """Over TCP, as it is in production."""
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/{database}"

    def control(self, *arguments: str) -> None:
        """Starts, stops or restarts it, and waits until that is done."""
        command = [str(self.programs / "pg_ctl"), "-D", str(self.folder / "data"), "-w", "-s", *arguments]
        subprocess.run(_as_server(command), check=True, cwd="/", timeout=60)

    def make_database(self) -> str:
        """The URL of a fresh database."""
        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Logic is tested here, so nothing waits for a disk."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    assert installed, "PostgreSQL is missing; install it with: sudo apt-get install postgresql"
    folder = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
    if os.geteuid() == 0:
        shutil.chown(folder, _USER, _USER)
    one = Cluster(installed[-1], folder, _free_port())
    initdb = [str(one.programs / "initdb"), "-D", str(folder / "data"), "-U", _USER, "-A", "trust", "-N", "-E", "UTF8"]
    subprocess.run(_as_server([*initdb, "--locale=C"]), check=True, cwd="/", stdout=subprocess.DEVNULL)
    settings = {
        "port": one.port,
        "listen_addresses": "'127.0.0.1'",
        "unix_socket_directories": f"'{folder}'",
        "fsync": "off",
        "full_page_writes": "off",
    }
    with (folder / "data" / "postgresql.conf").open("a") as file:
        file.writelines(f"{name} = {value}\n" for name, value in settings.items())
    try:
        one.control("start", "-l", str(folder / "log"))
        yield one
    finally:
        one.control("stop", "-m", "immediate")
        shutil.rmtree(folder)


@pytest.fixture
async def store(cluster: Cluster) -> AsyncIterator[PostgresStore]:
    """A store over an empty database."""
    store = await open_store(cluster.make_database())
    try:
        yield store
    finally:
        await store.close()
