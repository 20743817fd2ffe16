"""A PostgreSQL of our own in a directory, for whoever has none.

It is durable (fsync, page checksums), listens on a socket inside its directory and nowhere else, and lets in only the
user who started it. It does not outlive the process that started it, even a killed one, and comes back if it ends.

Invariants: whoever runs a server in the directory holds its lock, and the server holds it too, so that the next one
waits until the last one is gone; `data` is there only if it is complete; root writes nothing where its server may.
"""

import contextlib
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

import psycopg

from holdfast.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from holdfast.observe.logs import get_logger
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
        # Statements are short and many; compiling them costs more than it saves.
        "jit": "off",
        # A queue's rows come and go: they are swept up early.
        "autovacuum_naptime": "15s",
        "checkpoint_timeout": "15min",
        "max_wal_size": "2GB",
    }
)

_USER = _DATABASE = "holdfast"
_SOCKET = "socket/.s.PGSQL.5432"
#: What Linux takes as the path of a socket.
_SOCKET_CHARS_MAX = 107
#: Its own directory alone is open, to be searched by the account of a server that root starts; nothing more.
_FORBIDDEN = 0o066
_LOG_BYTES_MAX = 4 * 1_048_576
_STATUS_LINE = 7

_START_S = 60.0
#: A server whose starter was killed takes a moment to end.
_LOCK_S = 15.0
_STOP_S = 60.0
_POLL_S = 0.02
_RESTART_S = 0.2


class PrivatePostgres:
    """One server in one directory; `settings` are PostgreSQL's, on top of ours."""

    def __init__(
        self, directory: Path, settings: Mapping[str, str] = MappingProxyType({}), *, installed: Path = INSTALLED
    ) -> None:
        self._directory = directory.absolute()
        self._settings = {**SETTINGS, **settings}
        self._installed = installed
        self._open_directory = -1
        self._changing = threading.Lock()
        self._stopping = threading.Event()
        self._was_ready = False
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """Of the server that runs now."""
        assert self._process is not None
        return self._process.pid

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self._directory / _SOCKET

    def url(self, database: str = _DATABASE) -> str:
        """Where one of its databases is found, from this machine and by this user."""
        return f"postgresql://{_USER}@/{database}?host={quote(f'{self._directory}/socket', safe='')}&port=5432"

    def start(self) -> str:
        """Starts it, in a directory that is made if need be; returns the URL once it answers."""
        if len(f"{self._directory}/{_SOCKET}") > _SOCKET_CHARS_MAX:
            message = f"expected a path short enough for a socket in it, got {self._directory}"
            raise InvalidArgumentError(message, reason="DIRECTORY_TOO_LONG")
        programs = find_programs(self._data, self._installed)
        self._lock(programs)
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
        """Ends it in good order; connections that are open are cut."""
        with self._changing:
            self._stopping.set()
            self._send(signal.SIGINT)
        if self._thread is not None:
            self._thread.join(_STOP_S)
            if self._thread.is_alive():
                self._send(signal.SIGQUIT)
                self._thread.join()
            self._thread = None
        if self._open_directory >= 0:
            os.close(self._open_directory)
            self._open_directory = -1

    def crash(self) -> None:
        """Ends it at once, as a power cut would; it comes back by itself."""
        self._send(signal.SIGQUIT)

    # -- the directory

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    @property
    def _log(self) -> Path:
        return self._directory / "postgres.log"

    def _lock(self, programs: PostgresPrograms) -> None:
        try:
            make_directory(self._directory)
            check_directory(self._directory, forbidden=_FORBIDDEN)
            self._open_directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
            self._directory.chmod(0o711 if programs.account.is_other else 0o700)
        except OSError as error:
            message = f"cannot keep a database in {self._directory}: {error.strerror}"
            raise FailedPreconditionError(message, reason="DIRECTORY_UNUSABLE") from error
        deadline_s = time.monotonic() + _LOCK_S
        while not self._has_locked():
            if time.monotonic() > deadline_s:
                self.stop()
                message = f"another process runs PostgreSQL in {self._directory}: stop it first, or use another --data"
                raise FailedPreconditionError(message, reason="DIRECTORY_LOCKED")
            time.sleep(_POLL_S)

    def _has_locked(self) -> bool:
        try:
            fcntl.flock(self._open_directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _initialise(self, programs: PostgresPrograms) -> None:
        """Makes the data, whole or not at all."""
        new = self._directory / "new"
        if new.exists():
            shutil.rmtree(new)
        programs.give(new)
        arguments = ["--pgdata", f"{self._inside}/new", "--username", _USER, "--auth", "peer", "--data-checksums"]
        arguments += ["--encoding", "UTF8", "--no-locale"]
        self._log.touch(mode=0o600)
        with self._log.open("ab") as log:
            made = programs.start("initdb", *arguments, directory=self._open_directory, output=log)
            if made.wait() != 0:
                raise FailedPreconditionError(f"initdb failed: {self._last_words()}", reason="POSTGRES_FAILED")
        new.rename(self._data)
        os.fsync(self._open_directory)

    def _let_in(self, programs: PostgresPrograms) -> None:
        """Only this user, through the socket."""
        name = pwd.getpwuid(os.geteuid()).pw_name
        rules = {"hba": f"local all {_USER} peer map=holdfast", "ident": f'holdfast "{name}" {_USER}'}
        for kind, line in rules.items():
            path = self._directory / f"pg_{kind}.conf"
            path.write_text(f"{line}\n")
            path.chmod(0o644)
        if not (self._directory / "socket").exists():
            programs.give(self._directory / "socket")

    def _forget_the_dead(self) -> None:
        """PostgreSQL would take any process for its predecessor that has got that one's number since."""
        left = self._data / "postmaster.pid"
        with contextlib.suppress(OSError, ValueError):
            pid = int(left.read_text().split("\n", 1)[0])
            if Path(f"/proc/{pid}/cwd").resolve() != self._data.resolve():
                left.unlink()

    @property
    def _inside(self) -> str:
        """The directory as its programs see it."""
        return f"/proc/self/fd/{self._open_directory}"

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return " / ".join(lines[-5:])

    # -- the server

    def _begin(self, programs: PostgresPrograms) -> None:
        self._stopping.clear()
        self._was_ready = False
        self._thread = threading.Thread(target=self._keep, args=(programs,), name="holdfast-postgres", daemon=True)
        self._thread.start()
        deadline_s = time.monotonic() + _START_S
        while not self._is_ready():
            if not self._thread.is_alive() or time.monotonic() > deadline_s:
                raise UnavailableError(f"PostgreSQL does not start: {self._last_words()}", reason="POSTGRES_FAILED")
            time.sleep(_POLL_S)
        self._was_ready = True

    def _keep(self, programs: PostgresPrograms) -> None:
        """Starts it again whenever it ends. It lives as long as this thread does, so this thread waits for it."""
        while True:
            with self._changing:
                if self._stopping.is_set():
                    return
                process = self._process = self._launch(programs)
            process.wait()
            if self._stopping.is_set() or not self._was_ready:
                return
            get_logger().warning("database_died", status=process.returncode, message="starting it again")
            self._stopping.wait(_RESTART_S)

    def _launch(self, programs: PostgresPrograms) -> "subprocess.Popen[bytes]":
        self._forget_the_dead()
        if self._log.exists() and self._log.stat().st_size > _LOG_BYTES_MAX:
            self._log.replace(self._log.with_suffix(".log.1"))
        settings = {
            **self._settings,
            "unix_socket_directories": f"{self._inside}/socket",
            "hba_file": f"{self._inside}/pg_hba.conf",
            "ident_file": f"{self._inside}/pg_ident.conf",
        }
        arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        data = f"{self._inside}/data"
        with self._log.open("ab") as log:
            return programs.start("postgres", "-D", data, *arguments, directory=self._open_directory, output=log)

    def _is_ready(self) -> bool:
        """Whether the server of now says so in its file."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        process = self._process
        return (
            process is not None
            and len(lines) > _STATUS_LINE
            and lines[0] == str(process.pid)
            and lines[_STATUS_LINE].strip() == "ready"
        )

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _create_database(self) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            known = connection.execute("SELECT FROM pg_database WHERE datname = %s", [_DATABASE])
            if known.fetchone() is None:
                connection.execute(f"CREATE DATABASE {_DATABASE}".encode())
