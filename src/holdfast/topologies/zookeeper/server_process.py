"""One server of a private ensemble: a process that is started again whenever it ends, until it is told to stay down.

One that ends before it has ever served is not started again: it would say the same. One that serves nobody while its
neighbours do is killed and started again: ZooKeeper 3.8 can stay in the middle of its own shutdown, after an error in
one of its threads.
"""

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.observe.logs import get_logger
from holdfast.topologies.zookeeper.programs import JavaPrograms

_LOG_BYTES_MAX = 4 * 1_048_576
_STOP_S = 10.0
_ASK_S = 2.0
_RESTART_S = 0.2
#: How often a server is asked whether it serves, and for how long it may not while its neighbours do.
_LOOK_S = 5.0
_STUCK_S = 30.0
_SERVING = ("leader", "follower", "standalone")


class ZooKeeperServer:
    """One server in one folder, with a thread that keeps it: it lives as long as that thread does."""

    def __init__(self, folder: Path, port: int, configuration: Mapping[str, str], jaas: Path) -> None:
        """`jaas` says how it and its neighbours know each other."""
        self.folder = folder
        self._jaas = jaas
        self.port = port
        self._configuration = configuration
        self._changing = threading.Lock()
        self._is_down = threading.Event()
        self._was_ready = False
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_kept(self) -> bool:
        """Whether it runs, or will again."""
        return self._thread is not None and self._thread.is_alive()

    def prepare(self, number: int) -> None:
        """Writes what it reads when it starts."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        lines = [f"{name}={value}" for name, value in self._configuration.items()]
        _replace(self.folder / "zoo.cfg", "\n".join([*lines, ""]))
        _replace(self.folder / "myid", f"{number}\n")

    def start(self, programs: JavaPrograms, directory: int, do_others_serve: Callable[[], bool]) -> None:
        """Begins to keep it; the open directory is the one that its folder is in."""
        assert not self.is_kept, "it is kept already"
        self._is_down.clear()
        self._thread = threading.Thread(
            target=self._keep,
            args=(programs, directory, do_others_serve),
            name=f"holdfast-zookeeper-{self.folder.name}",
            daemon=True,
        )
        self._thread.start()

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Tells it to end and to stay down; one that is stopped goes on for that."""
        with self._changing:
            self._is_down.set()
            self.send(number)
            self.send(signal.SIGCONT)

    def ended(self) -> None:
        """Waits until it has ended after `end`."""
        if self._thread is None:
            return
        self._thread.join(_STOP_S)
        if self._thread.is_alive():
            self.send(signal.SIGKILL)
            self._thread.join()
        self._thread = None

    def send(self, number: signal.Signals) -> None:
        """A signal, if there is anybody to hear it."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def mode(self) -> str:
        """Its part in the ensemble, `leader` or `follower`; empty while it serves nobody."""
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
        self._was_ready = True
        return mode

    def last_words(self) -> str:
        """The end of its log, without the lines of Java's code that it was at."""
        with contextlib.suppress(OSError):
            lines = self._log.read_text(errors="replace").strip().splitlines()
            return " / ".join([line for line in lines if not line.startswith("\tat ")][-5:])
        return ""

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"

    def _keep(self, programs: JavaPrograms, directory: int, do_others_serve: Callable[[], bool]) -> None:
        while True:
            with self._changing:
                if self._is_down.is_set():
                    return
                process = self._process = self._launch(programs, directory)
            self._wait(process, do_others_serve)
            if self._is_down.is_set() or not self._was_ready:
                return
            get_logger().warning(
                "ensemble_server_died", server=self.folder.name, status=process.returncode, message="starting it again"
            )
            self._is_down.wait(_RESTART_S)

    def _wait(self, process: "subprocess.Popen[bytes]", do_others_serve: Callable[[], bool]) -> None:
        """Waits for the end of the process, and ends one that is stuck."""
        served_s = time.monotonic()
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_S)
                return
            if self.mode():
                served_s = time.monotonic()
            elif time.monotonic() - served_s > _STUCK_S and not self._is_down.is_set() and do_others_serve():
                get_logger().warning(
                    "ensemble_server_stuck",
                    server=self.folder.name,
                    message=f"it served nobody for {_STUCK_S:.0f} s while others did: killed, to be started again",
                )
                process.kill()

    def _launch(self, programs: JavaPrograms, directory: int) -> "subprocess.Popen[bytes]":
        if self._log.exists() and self._log.stat().st_size > _LOG_BYTES_MAX:
            self._log.replace(self._log.with_suffix(".log.1"))
        with self._log.open("ab") as log:
            return programs.start(f"{self.folder}/zoo.cfg", jaas=self._jaas, directory=directory, output=log)


def _replace(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    new = path.with_name(f"{path.name}.new")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
