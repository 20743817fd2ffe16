"""A primary and a standby in one folder, whose descriptor the servers inherit: they may run as another user."""

import os
import subprocess
from pathlib import Path
from urllib.parse import quote

import psycopg

from holdfast.process.engine_process import Popen
from holdfast.process.postgres_programs import PostgresPrograms, find_programs
from tests.integration.cluster.cluster_work import wait_until

_OPTIONS = {
    "fsync": "off",
    "shared_buffers": "32MB",
    "listen_addresses": "",
    "port": "5432",
    "wal_receiver_status_interval": "1s",
}


class PostgresServer:
    """One server that a test crashes, copies and promotes."""

    def __init__(self, folder: Path, name: str) -> None:
        self._name = name
        self._path = folder / name
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._settings = dict(_OPTIONS)
        self._process: Popen | None = None

    @property
    def host(self) -> str:
        """The folder of its socket."""
        return str(self._path / "socket")

    @property
    def url(self) -> str:
        """The URL of its database."""
        return url_of(self)

    def create(self) -> None:
        """Creates its data, which admit everyone who can reach the socket."""
        self._path.mkdir(mode=0o711)
        programs = self._programs()
        for name in ("socket", "data"):
            programs.give(self._path / name)
        options = ["--username", "holdfast", "--auth", "trust", "--no-sync", "--encoding", "UTF8", "--no-locale"]
        assert self._run("initdb", "-D", self._inside("data"), *options).wait() == 0

    def copy_from(self, primary: "PostgresServer") -> None:
        """Becomes a standby of a primary that is not running."""
        subprocess.run(["/bin/cp", "-a", primary._path, self._path], check=True)
        (self._path / "data/standby.signal").touch()
        inside = f"/proc/self/fd/{self._descriptor}/{primary._name}/socket"
        self._settings["primary_conninfo"] = f"host={inside} port=5432 user=holdfast application_name={self._name}"

    def start(self) -> None:
        """Starts the server, and returns when it answers."""
        settings = {**self._settings, "unix_socket_directories": self._inside("socket")}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._process = self._run("postgres", "-D", self._inside("data"), *options)
        wait_until(self._answers)

    def crash(self) -> None:
        """Ends the server at once; harmless if it does not run."""
        if self._process is not None:
            subprocess.run(["/bin/kill", "-QUIT", str(self._process.pid)], check=False)
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """Ends the server and closes the folder."""
        self.crash()
        os.close(self._descriptor)

    def ask(self, statement: str) -> list[tuple[object, ...]]:
        """Runs a query in a session of its own."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement.encode()).fetchall()

    def do(self, statement: str) -> None:
        """Runs a statement in a session of its own."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._path / "log").read_text()
        try:
            return bool(self.ask("SELECT 1"))
        except psycopg.OperationalError:
            return False

    def _programs(self) -> PostgresPrograms:
        return find_programs(self._path / "data")

    def _inside(self, name: str) -> str:
        return f"/proc/self/fd/{self._descriptor}/{self._name}/{name}"

    def _run(self, program: str, *arguments: str) -> Popen:
        with (self._path / "log").open("ab") as log:
            return self._programs().start(program, *arguments, directory=self._descriptor, output=log)


def url_of(*servers: PostgresServer) -> str:
    """Returns the URL with all servers as hosts."""
    hosts = ",".join(quote(server.host, safe="") for server in servers)
    return f"postgresql://holdfast@/postgres?host={hosts}&port={','.join(['5432'] * len(servers))}"
