"""Finds and runs ZooKeeper as Debian installs it.

A server is killed when the thread that started it ends, however it ends; that loses no acknowledged data.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec

from holdfast.errors import FailedPreconditionError
from holdfast.process.engine_process import Popen, spawn_engine

#: The folder of Debian's packages for Java archives.
INSTALLED = Path("/usr/share/java")

_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
#: Initial and maximum heap. It limits the number of jobs: all of them are in memory, and more than once while a server
#: loads the state.
_HEAP = ("-Xms256m", "-Xmx512m")
#: A server without memory ends and is restarted; otherwise it would stay and answer no request.
_FULL = "-XX:+ExitOnOutOfMemoryError"
#: A returning server loads a whole snapshot, not only the missing transactions: in ZooKeeper 3.8.0, Debian's version,
#: servers may differ permanently after the latter (ZOOKEEPER-4785 and others), and clients of each read different data.
_LEARNING = "-Dzookeeper.forceSnapshotSync=true"
_LOGGER = "org.slf4j.simpleLogger"
#: Logs warnings, except those that repeat several times a second while another server is down.
_LOGGING: Mapping[str, str] = {
    "defaultLogLevel": "warn",
    "log.org.apache.zookeeper.server.quorum": "error",
    "log.org.apache.zookeeper.server.ServerCnxnFactory": "error",
    "log.org.apache.zookeeper.server.NIOServerCnxn": "error",
    "log.org.apache.zookeeper.server.PrepRequestProcessor": "error",
    "showDateTime": "true",
    "dateTimeFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    "showThreadName": "false",
}


class JavaPrograms(msgspec.Struct, frozen=True):
    """The Java program, and the archives of ZooKeeper."""

    java: str
    classes: list[Path]

    def start(self, configuration: str, *, jaas: Path, directory: int, output: BinaryIO | int) -> Popen:
        """Starts a server that inherits the open directory."""
        command = [
            *(self.java, *_HEAP, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", _FULL, _LEARNING),
            f"-Djava.security.auth.login.config={jaas}",
            *(f"-D{_LOGGER}.{name}={value}" for name, value in _LOGGING.items()),
            *("-cp", ":".join(map(str, self.classes)), _MAIN, configuration),
        ]
        return spawn_engine(command, death_signal="KILL", directory=directory, output=output)


def find_programs(installed: Path = INSTALLED) -> JavaPrograms:
    """Finds Java and ZooKeeper; `FailedPreconditionError` says how to install them."""
    java = shutil.which("java")
    server = installed / "zookeeper.jar"
    if java is None or not server.exists():
        missing = "ZooKeeper" if java is not None else "Java"
        message = (
            f"there is no {missing} on this machine: apt-get install zookeeper, or name an ensemble with --ensemble"
        )
        raise FailedPreconditionError(message, reason="ZOOKEEPER_MISSING")
    # The package includes slf4j-simple; without it ZooKeeper writes no log.
    return JavaPrograms(java, [path for path in (server, installed / "slf4j-simple.jar") if path.exists()])
