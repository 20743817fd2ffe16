"""ZooKeeper as Debian installs it, and how one of its servers is run.

A server is killed when the thread that started it ends, however it ends: what it has acknowledged is on its disk.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec

from holdfast.errors import FailedPreconditionError
from holdfast.process.engine_process import Popen, spawn_engine

#: Where Debian's packages put what is written in Java.
INSTALLED = Path("/usr/share/java")

_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
#: Memory to begin with, and at most. It bounds how many jobs there may be: all of them are in it, and more than once
#: while a server learns them anew.
_HEAP = ("-Xms256m", "-Xmx512m")
#: A server without memory ends and is restarted; otherwise it would stay and answer no request.
_FULL = "-XX:+ExitOnOutOfMemoryError"
#: Who comes back is sent all that there is, not what it seems to have missed: servers of 3.8.0, which is Debian's, may
#: differ for good after the latter (ZOOKEEPER-4785 and others), and then each client is told what its server believes.
_LEARNING = "-Dzookeeper.forceSnapshotSync=true"
_LOGGER = "org.slf4j.simpleLogger"
#: Warnings are written, but not several times a second that a neighbour is not there.
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
    """Java, and what it is to run."""

    java: str
    classes: list[Path]

    def start(self, configuration: str, *, jaas: Path, directory: int, output: BinaryIO | int) -> Popen:
        """Starts a server that is handed this open directory."""
        command = [
            *(self.java, *_HEAP, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", _FULL, _LEARNING),
            f"-Djava.security.auth.login.config={jaas}",
            *(f"-D{_LOGGER}.{name}={value}" for name, value in _LOGGING.items()),
            *("-cp", ":".join(map(str, self.classes)), _MAIN, configuration),
        ]
        return spawn_engine(command, death_signal="KILL", directory=directory, output=output)


def find_programs(installed: Path = INSTALLED) -> JavaPrograms:
    """`FailedPreconditionError` says how to install what is missing."""
    java = shutil.which("java")
    server = installed / "zookeeper.jar"
    if java is None or not server.exists():
        missing = "ZooKeeper" if java is not None else "Java"
        message = (
            f"there is no {missing} on this machine: apt-get install zookeeper, or name an ensemble with --ensemble"
        )
        raise FailedPreconditionError(message, reason="ZOOKEEPER_MISSING")
    # It comes with the package; without it ZooKeeper has nowhere to log.
    return JavaPrograms(java, [path for path in (server, installed / "slf4j-simple.jar") if path.exists()])
