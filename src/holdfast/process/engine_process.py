"""A server program of an engine (PostgreSQL, ZooKeeper), kept running by a thread of this process.

The kernel sends the server its death signal when the thread that started it ends, however it ends. So one thread
starts the server, waits for it and starts it again. Processes that print a ready line are kept by the supervisor.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

_LOG_BYTES_MAX = 4 * 1_048_576
_LOG_LINES_QUOTED = 5
_RESTART_S = 0.2
_POLL_S = 0.02
#: PDEATHSIG race: the shell re-checks the parent's pid after setpriv.
_STARTER = '[ "$PPID" = "$0" ] || exit 1; exec "$@"'

Popen = subprocess.Popen[bytes]


def spawn_engine(
    command: Sequence[str], *, death_signal: str, account: Sequence[str] = (), directory: int, output: BinaryIO | int
) -> Popen:
    """Starts a program that inherits the open directory; `account` are setpriv's options for another user."""
    mortal = ["setpriv", "--pdeathsig", death_signal, *account, "sh", "-c", _STARTER, str(os.getpid()), *command]
    return subprocess.Popen(  # noqa: S603 - programs of the machine, arguments of ours
        mortal,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        pass_fds=[directory],
        cwd="/",
        env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
        start_new_session=True,
    )


class EngineProcess:
    """One server: started again whenever it exits, until `end`.

    A server that exits before it was ever ready is not started again: it would fail the same way.
    """

    def __init__(self, name: str, log: Path, died: Callable[[int], None]) -> None:
        """`died` receives the exit status of a server that is about to be started again."""
        self._name = name
        self._log = log
        self._died = died
        self._changing = threading.Lock()
        self._is_down = threading.Event()
        self._process: Popen | None = None
        self._thread: threading.Thread | None = None
        self.was_ready = False

    @property
    def pid(self) -> int:
        """The pid of the current process; 0 before the first one."""
        return self._process.pid if self._process is not None else 0

    @property
    def is_kept(self) -> bool:
        """Whether it runs, or will be started again."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_down(self) -> bool:
        """Whether `end` was called."""
        return self._is_down.is_set()

    def keep(self, launch: Callable[[BinaryIO], Popen], wait: Callable[[Popen], Any] = Popen.wait) -> None:
        """Starts the thread: it calls `launch` with the log for each process, and `wait` until that has exited."""
        assert not self.is_kept, "it is kept already"
        self._is_down.clear()
        self._thread = threading.Thread(target=self._keep, args=(launch, wait), name=self._name, daemon=True)
        self._thread.start()

    def end(self, *numbers: signal.Signals) -> None:
        """Sends the signals; the server stays down."""
        with self._changing:
            self._is_down.set()
            for number in numbers:
                self.send(number)

    def ended(self, patience_s: float, last: signal.Signals) -> None:
        """Waits for the exit after `end`; sends the last signal after `patience_s`."""
        if self._thread is None:
            return
        self._thread.join(patience_s)
        if self._thread.is_alive():
            self.send(last)
            self._thread.join()
        self._thread = None

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the process, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def becomes_ready(self, is_ready: Callable[[], object], patience_s: float) -> bool:
        """Waits until it is ready; False if it has exited for good, or after `patience_s`."""
        deadline_s = time.monotonic() + patience_s
        while not is_ready():
            if not self.is_kept or time.monotonic() > deadline_s:
                return False
            time.sleep(_POLL_S)
        self.was_ready = True
        return True

    def last_words(self) -> str:
        """The end of its log, without the stack frames of Java."""
        with contextlib.suppress(OSError):
            lines = self._log.read_text(errors="replace").strip().splitlines()
            return " / ".join([line for line in lines if not line.startswith("\tat ")][-_LOG_LINES_QUOTED:])
        return ""

    def _keep(self, launch: Callable[[BinaryIO], Popen], wait: Callable[[Popen], Any]) -> None:
        while True:
            with self._changing:
                if self.is_down:
                    return
                with self._fresh_log() as log:
                    process = self._process = launch(log)
            wait(process)
            if self.is_down or not self.was_ready:
                return
            self._died(process.returncode)
            self._is_down.wait(_RESTART_S)

    def _fresh_log(self) -> BinaryIO:
        if self._log.exists() and self._log.stat().st_size > _LOG_BYTES_MAX:
            self._log.replace(self._log.with_suffix(".log.1"))
        return self._log.open("ab")
