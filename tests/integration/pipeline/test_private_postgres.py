"""A private PostgreSQL, as a real server."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from holdfast.process.postgres_programs import INSTALLED
from holdfast.process.private_postgres import PrivatePostgres
from tests.e2e.wait_until import eventually
from tests.postgres import QUICK, require_postgres

#: Starts a server, prints its process id, and waits to be killed.
STARTER = """
import sys
from pathlib import Path
from holdfast.process.private_postgres import PrivatePostgres
server = PrivatePostgres(Path(sys.argv[1]), {"fsync": "off"})
server.start()
print(server.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a server that ran once, because initialising the data takes long."""
    require_postgres()
    folder = tmp_path_factory.mktemp("made") / "deep" / "pg"
    server = PrivatePostgres(folder)
    url = server.start()
    told = {name: ask(url, f"SHOW {name}") for name in ("fsync", "data_checksums", "max_connections")}
    assert told == {"fsync": "on", "data_checksums": "on", "max_connections": "200"}
    server.stop()
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A directory with a copy of the data, for one test."""
    subprocess.run(["/bin/cp", "-a", made, tmp_path / "pg"], check=True)
    return tmp_path / "pg"


@pytest.fixture
def server(folder: Path) -> Iterator[PrivatePostgres]:
    """A server that is not started yet, and is stopped after the test."""
    server = PrivatePostgres(folder, QUICK)
    yield server
    server.stop()


def ask(url: str, question: str) -> object:
    """Runs a query and returns its first value."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(question.encode()).fetchone()
    assert row is not None
    return row[0]


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_private_server_accepts_no_other_user(folder: Path, server: PrivatePostgres) -> None:
    """The server listens only on a socket that no other user can open, and accepts no other database user."""
    url = server.start()
    assert ask(url, "SHOW listen_addresses") == ""
    assert ask(url, "SELECT pg_encoding_to_char(encoding) || datcollate FROM pg_database LIMIT 1") == "UTF8C"
    assert [(folder / name).stat().st_mode & 0o077 for name in ("data", "socket", "postgres.log")] == [0, 0, 0]
    with pytest.raises(psycopg.OperationalError, match=r"no pg_hba.conf entry"):
        psycopg.connect(url.replace("holdfast@", "postgres@"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_another_user_of_the_machine_is_not_let_in(server: PrivatePostgres) -> None:
    """Another account has no access to the socket, and one that reaches it fails peer authentication."""
    url, psql = server.start(), max(INSTALLED.glob("*/bin/psql"))

    def asked_by(name: str, group: str, socket: str) -> str:
        command = ["setpriv", "--reuid", name, "--regid", group, "--clear-groups", str(psql)]
        place = f"host={socket} port=5432 user=holdfast dbname=holdfast"
        tried = subprocess.run(
            [*command, place, "-c", "SELECT 1"], capture_output=True, text=True, check=False, cwd="/"
        )
        assert tried.returncode != 0
        return tried.stderr

    assert ask(url, "SELECT 1") == 1
    assert "Permission denied" in asked_by("nobody", "nogroup", str(server.socket.parent))
    assert "Peer authentication failed" in asked_by("postgres", "postgres", f"/proc/{server.pid}/cwd/../socket")


def test_second_start_finds_the_data_of_the_first(server: PrivatePostgres) -> None:
    """A server that is started again has the data of its first run."""
    url = server.start()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    server.stop()
    assert ask(server.start(), "SELECT number FROM kept") == 7


def test_crashed_server_comes_back(server: PrivatePostgres) -> None:
    """A server that crashes is restarted with all committed data."""
    url = server.start()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    first = server.pid
    assert os.getpgid(first) != os.getpgid(0)  # another process group, so that Ctrl-C does not reach it
    server.crash()
    eventually(lambda: server.pid != first and answers(url))
    assert ask(url, "SELECT number FROM kept") == 7


def answers(url: str) -> bool:
    """Whether the server answers a query."""
    try:
        return ask(url, "SELECT true") is True
    except psycopg.OperationalError:
        return False


def test_server_ends_with_a_killed_starter(folder: Path, server: PrivatePostgres) -> None:
    """The server ends when the process that started it is killed, and the next start succeeds."""
    command = [sys.executable, "-c", STARTER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
    assert ask(server.start(), "SELECT 1") == 1
    assert not is_alive(pid)


def test_leftover_of_a_killed_server_is_seen_through(folder: Path, server: PrivatePostgres) -> None:
    """A stale postmaster.pid with the id of an unrelated process does not prevent a start."""
    (folder / "data/postmaster.pid").write_text(f"{os.getppid()}\n{folder}/data\n0\n5432\n\n\n 1 1\nready\n")
    assert ask(server.start(), "SELECT 1") == 1


def test_half_made_data_is_made_again(tmp_path: Path) -> None:
    """An incomplete data directory of a killed start is created again."""
    require_postgres()
    (tmp_path / "new").mkdir()
    (tmp_path / "new/PG_VERSION").write_text("15")
    server = PrivatePostgres(tmp_path, QUICK)
    assert ask(server.start(), "SELECT 1") == 1
    server.stop()


def test_one_server_per_directory(folder: Path, server: PrivatePostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second server in the directory of a running one is refused."""
    server.start()
    monkeypatch.setattr("holdfast.process.engine_directory._LOCK_S", 0.1)
    with pytest.raises(FailedPreconditionError, match="another process runs PostgreSQL in"):
        PrivatePostgres(folder, QUICK).start()
    assert ask(server.url(), "SELECT 1") == 1


def test_server_that_cannot_start_says_why(folder: Path) -> None:
    """The error of a failed start contains PostgreSQL's own message, and the directory is free again."""
    with pytest.raises(UnavailableError, match="max_connections"):
        PrivatePostgres(folder, {**QUICK, "max_connections": "none"}).start()
    server = PrivatePostgres(folder, QUICK)
    server.start()
    server.stop()


def test_missing_postgres_is_explained(tmp_path: Path) -> None:
    """If PostgreSQL is not installed, the error names the command that installs it."""
    with pytest.raises(
        FailedPreconditionError, match="apt-get install postgresql`, or name a database with --database"
    ):
        PrivatePostgres(tmp_path / "pg", installed=tmp_path / "none").start()
    (tmp_path / "pg/data").mkdir(parents=True)
    (tmp_path / "pg/data/PG_VERSION").write_text("9.6\n")
    with pytest.raises(FailedPreconditionError, match=r"cannot find PostgreSQL 9\.6 .*apt-get install postgresql-9\.6"):
        PrivatePostgres(tmp_path / "pg").start()


def test_path_that_is_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    """A directory whose path is too long for a socket is refused before anything is created."""
    with pytest.raises(InvalidArgumentError, match="a shorter path for the socket"):
        PrivatePostgres(tmp_path / ("x" * 100)).start()
    assert list(tmp_path.iterdir()) == []
