"""Runs the program as people and scripts do: with pipes, or on a terminal."""

import contextlib
import os
import pty
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from tests.e2e.fleet import HOLDFAST, clean_environment
from tests.e2e.wait_until import DEADLINE_S

Done = subprocess.CompletedProcess[str]


class Running(Protocol):
    """A started process."""

    def kill(self) -> None:
        """Kills the process, unless it has ended."""

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end of the process and returns its exit status."""


class Shell:
    """Runs commands in one folder, with one default server."""

    def __init__(self, folder: Path, connect: str = "") -> None:
        self.folder = folder
        self.environment = {"HOLDFAST_CONNECT": connect} if connect else {}

    def run(self, *arguments: str, stdin: str = "", patience_s: float = DEADLINE_S, **environment: str) -> Done:
        """Runs a command with pipes for its streams and returns its output and exit status."""
        return subprocess.run(
            [*HOLDFAST, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=clean_environment({**self.environment, **environment}),
            cwd=self.folder,
            check=False,
            timeout=patience_s,
        )

    def at_terminal(
        self, *arguments: str, typed: str = "", awaited: str = "", then: Callable[[], object] = str
    ) -> tuple[int, str]:
        """Returns exit status and terminal output of a command; calls `then` once the awaited text has appeared."""
        ours, theirs = pty.openpty()
        environment = {**self.environment, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
        process = self._on_terminal(theirs, arguments, environment)
        os.close(theirs)
        try:
            os.write(ours, typed.encode())
            text = _read_all(ours, awaited, then)
            return process.wait(DEADLINE_S), text
        finally:
            process.kill()
            process.wait()
            os.close(ours)

    def _on_terminal(self, terminal: int, arguments: tuple[str, ...], environment: Mapping[str, str]) -> Running:
        return subprocess.Popen(
            [*HOLDFAST, *arguments],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=clean_environment(environment),
            cwd=self.folder,
            start_new_session=True,
        )


def _read_all(terminal: int, awaited: str, then: Callable[[], object]) -> str:
    text, is_seen = b"", False
    with contextlib.suppress(OSError):  # EIO: the other end of the terminal is closed
        while part := os.read(terminal, 65_536):
            text += part
            if not is_seen and awaited.encode() in text:
                is_seen = True
                then()
    return text.decode()
