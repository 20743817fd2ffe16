"""One server of a private ensemble.

A server that does not serve while others do is killed and restarted: ZooKeeper 3.8 can hang in its own
shutdown, after an error in one of its threads. The time allowed doubles with each restart until it serves, because on a
busy machine a server may need longer to load its data, and every restart begins anew.
"""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

from holdfast.observe.logs import get_logger
from holdfast.process.engine_process import EngineProcess, Popen
from holdfast.topologies.zookeeper.programs import JavaPrograms

_ASK_S = 2.0
#: Interval of the checks whether a server serves, and how long it may not while others do: at first, and at most.
_LOOK_S = 5.0
_STUCK_S = 30.0
_STUCK_S_MAX = 480.0
_SERVING = ("leader", "follower", "standalone")


class ZooKeeperServer(EngineProcess):
    """One server in one folder."""

    def __init__(self, folder: Path, port: int, configuration: Mapping[str, str], jaas: Path) -> None:
        """`jaas` is the file by which the servers authenticate each other."""
        super().__init__(f"holdfast-zookeeper-{folder.name}", folder / "server.log", self._on_death)
        self.folder = folder
        self._jaas = jaas
        self.port = port
        self._configuration = configuration
        #: Restarts because it was stuck, since it served last.
        self._stuck_times = 0

    def prepare(self, number: int) -> None:
        """Writes its configuration files."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        lines = [f"{name}={value}" for name, value in self._configuration.items()]
        replace_file(self.folder / "zoo.cfg", "\n".join([*lines, ""]))
        replace_file(self.folder / "myid", f"{number}\n")

    def start(self, programs: JavaPrograms, directory: int, do_others_serve: Callable[[], bool]) -> None:
        """Keeps the server running; `directory` is the open parent directory of its folder."""
        self.keep(partial(self._launch, programs, directory), partial(self._wait, do_others_serve))

    def mode(self) -> str:
        """Returns its mode, such as `leader` or `follower`; empty while it does not serve."""
        answer = b""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), timeout=_ASK_S) as connection,
        ):
            connection.sendall(b"srvr")
            while chunk := connection.recv(4096):
                answer += chunk
        _, _, said = answer.decode(errors="replace").partition("Mode: ")
        mode = said.split("\n", 1)[0]
        if mode not in _SERVING:
            return ""
        self.was_ready = True
        return mode

    def _on_death(self, status: int) -> None:
        name = self.folder.name
        get_logger().warning("ensemble_server_died", server=name, status=status, message="restarting it")

    def _wait(self, do_others_serve: Callable[[], bool], process: Popen) -> None:
        """Waits for the exit of the process, and kills one that is stuck."""
        served_s = time.monotonic()
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_S)
                return
            allowed_s = min(_STUCK_S * 2**self._stuck_times, _STUCK_S_MAX)
            if self.mode():
                served_s = time.monotonic()
                self._stuck_times = 0
            elif time.monotonic() - served_s > allowed_s and not self.is_down and do_others_serve():
                get_logger().warning(
                    "ensemble_server_stuck",
                    server=self.folder.name,
                    message=f"it did not serve for {allowed_s:.0f} s while others did; killing and restarting it",
                )
                self._stuck_times += 1
                process.kill()

    def _launch(self, programs: JavaPrograms, directory: int, log: BinaryIO) -> Popen:
        return programs.start(f"{self.folder}/zoo.cfg", jaas=self._jaas, directory=directory, output=log)


def replace_file(path: Path, text: str) -> None:
    """Replaces a file atomically."""
    new = path.with_name(f"{path.name}.new")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
