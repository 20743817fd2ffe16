"""A private PostgreSQL server in a directory, for users without a PostgreSQL.

It is durable (fsync, page checksums), listens only on a socket inside its directory, and accepts only the user that
started it. It does not outlive the process that started it, even a killed one, and is restarted if it ends.

Invariants: the process that runs a server in the directory holds its lock, and the server inherits the lock, so that
the next server waits until the last one has ended; `data` exists only if it is complete; root writes no file where its
server may write.
"""

import contextlib
import os
import pwd
import shutil
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO
from urllib.parse import quote

import psycopg

from holdfast.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from holdfast.observe.logs import get_logger
from holdfast.process.engine_directory import EngineDirectory
from holdfast.process.engine_process import EngineProcess, Popen
from holdfast.process.postgres_programs import INSTALLED, PostgresPrograms, find_programs
from holdfast.process.private_paths import check_directory, make_directory

SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "listen_addresses": "",
        "port": "5432",
        "unix_socket_permissions": "0700",
        "max_connections": "200",
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "timezone": "UTC",
        "log_timezone": "UTC",
        # Statements are short; compiling them costs more than it saves.
        "jit": "off",
        # The rows of a queue are short-lived: vacuum them early.
        "autovacuum_naptime": "15s",
        "checkpoint_timeout": "15min",
        "max_wal_size": "2GB",
    }
)

_USER = _DATABASE = "holdfast"
_SOCKET = "socket/.s.PGSQL.5432"
#: The maximum length of a socket path on Linux.
_SOCKET_CHARS_MAX = 107
#: Forbidden mode bits: others may search the directory, because root runs the server as another user; nothing more.
_FORBIDDEN = 0o066
_STATUS_LINE = 7

_START_S = 60.0
_STOP_S = 60.0


class PrivatePostgres:
    """One server in one directory; `settings` of PostgreSQL override the defaults."""

    def __init__(
        self, directory: Path, settings: Mapping[str, str] = MappingProxyType({}), *, installed: Path = INSTALLED
    ) -> None:
        self._directory = directory.absolute()
        self._settings = {**SETTINGS, **settings}
        self._installed = installed
        self._claim = EngineDirectory(
            self._directory, holds="a database", engine="PostgreSQL", advice=": stop it first, or use another --data"
        )
        self._server = EngineProcess("holdfast-postgres", self._log, _on_death)

    @property
    def pid(self) -> int:
        """The pid of the running server."""
        return self._server.pid

    @property
    def socket(self) -> Path:
        """The path of its socket."""
        return self._directory / _SOCKET

    def url(self, database: str = _DATABASE) -> str:
        """Returns the URL of one of its databases, for this user on this machine."""
        return f"postgresql://{_USER}@/{database}?host={quote(f'{self._directory}/socket', safe='')}&port=5432"

    def start(self) -> str:
        """Starts the server, creates its directory if necessary, and returns the URL once it answers."""
        if len(f"{self._directory}/{_SOCKET}") > _SOCKET_CHARS_MAX:
            message = f"expected a shorter path for the socket in it, got {self._directory}; choose another --data"
            raise InvalidArgumentError(message, reason="DIRECTORY_TOO_LONG")
        programs = find_programs(self._data, self._installed)
        self._claim.open(partial(_prepare, programs))
        try:
            if not self._data.exists():
                self._initialise(programs)
            self._let_in(programs)
            self._begin(programs)
            self._create_database()
        except BaseException:
            self.stop()
            raise
        return self.url()

    def stop(self) -> None:
        """Stops the server gracefully; open connections are closed."""
        self._server.end(signal.SIGINT)
        self._server.ended(_STOP_S, signal.SIGQUIT)
        self._claim.close()

    def crash(self) -> None:
        """Ends the server at once, as a power cut would; it is restarted."""
        self._server.send(signal.SIGQUIT)

    # -- the directory

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    @property
    def _log(self) -> Path:
        return self._directory / "postgres.log"

    def _initialise(self, programs: PostgresPrograms) -> None:
        """Creates the data directory atomically."""
        new = self._directory / "new"
        if new.exists():
            shutil.rmtree(new)
        programs.give(new)
        arguments = ["--pgdata", f"{self._inside}/new", "--username", _USER, "--auth", "peer", "--data-checksums"]
        arguments += ["--encoding", "UTF8", "--no-locale"]
        self._log.touch(mode=0o600)
        with self._log.open("ab") as log:
            made = programs.start("initdb", *arguments, directory=self._claim.descriptor, output=log)
            if made.wait() != 0:
                raise FailedPreconditionError(f"initdb failed: {self._server.last_words()}", reason="POSTGRES_FAILED")
        new.rename(self._data)
        os.fsync(self._claim.descriptor)

    def _let_in(self, programs: PostgresPrograms) -> None:
        """Configures access: only this user, through the socket."""
        name = pwd.getpwuid(os.geteuid()).pw_name
        rules = {"hba": f"local all {_USER} peer map=holdfast", "ident": f'holdfast "{name}" {_USER}'}
        for kind, line in rules.items():
            path = self._directory / f"pg_{kind}.conf"
            path.write_text(f"{line}\n")
            path.chmod(0o644)
        if not (self._directory / "socket").exists():
            programs.give(self._directory / "socket")

    def _forget_the_dead(self) -> None:
        """Removes a stale postmaster.pid; PostgreSQL would take a process that reuses the pid for a running server."""
        left = self._data / "postmaster.pid"
        with contextlib.suppress(OSError, ValueError):
            pid = int(left.read_text().split("\n", 1)[0])
            if Path(f"/proc/{pid}/cwd").resolve() != self._data.resolve():
                left.unlink()

    @property
    def _inside(self) -> str:
        """The path of the directory for its programs."""
        return f"/proc/self/fd/{self._claim.descriptor}"

    # -- the server

    def _begin(self, programs: PostgresPrograms) -> None:
        self._server.was_ready = False
        self._server.keep(partial(self._launch, programs))
        if not self._server.becomes_ready(self._is_ready, _START_S):
            message = f"PostgreSQL does not start: {self._server.last_words()}"
            raise UnavailableError(message, reason="POSTGRES_FAILED")

    def _launch(self, programs: PostgresPrograms, log: BinaryIO) -> Popen:
        self._forget_the_dead()
        settings = {
            **self._settings,
            "unix_socket_directories": f"{self._inside}/socket",
            "hba_file": f"{self._inside}/pg_hba.conf",
            "ident_file": f"{self._inside}/pg_ident.conf",
        }
        arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        data = f"{self._inside}/data"
        return programs.start("postgres", "-D", data, *arguments, directory=self._claim.descriptor, output=log)

    def _is_ready(self) -> bool:
        """Returns whether the running server reports ready in its pid file."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) > _STATUS_LINE and lines[0] == str(self.pid) and lines[_STATUS_LINE].strip() == "ready"

    def _create_database(self) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            known = connection.execute("SELECT FROM pg_database WHERE datname = %s", [_DATABASE])
            if known.fetchone() is None:
                connection.execute(f"CREATE DATABASE {_DATABASE}".encode())


def _prepare(programs: PostgresPrograms, directory: Path) -> None:
    make_directory(directory)
    check_directory(directory, forbidden=_FORBIDDEN)
    directory.chmod(0o711 if programs.account.is_other else 0o700)


def _on_death(status: int) -> None:
    get_logger().warning("database_died", status=status, message="restarting it")
