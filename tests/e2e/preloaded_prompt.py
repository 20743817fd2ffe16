"""A shell that forks its commands from a preloaded program, because most of a command's run time is importing.

Each command is a process with its own folder, environment, streams and exit status. Tests with a `Fleet` or a `Shell`
cover the cold start of the program.
"""

import contextlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.e2e.fleet import clean_environment
from tests.e2e.shell import Done, Running, Shell
from tests.e2e.wait_until import DEADLINE_S

_PROGRAM = Path(__file__).with_name("preloaded_program.py")


class Command:
    """One process that the preloaded program has forked."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._answers = line.makefile()
        self._line.settimeout(DEADLINE_S)
        self._pid = int(self._answers.readline())
        self._status: int | None = None

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def returncode(self) -> int | None:
        return self._status

    def poll(self) -> int | None:
        if self._status is None and select.select([self._line], [], [], 0)[0]:
            self.wait()
        return self._status

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        if self._status is None:
            self._line.settimeout(timeout)
            self._status = int(self._answers.readline())
            self._answers.close()
            self._line.close()
        return self._status


class LoadedProgram:
    """The client of the preloaded program."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line

    def start(
        self,
        arguments: tuple[str, ...],
        streams: tuple[int, int, int],
        environment: Mapping[str, str],
        folder: Path,
        *,
        has_session: bool = False,
    ) -> Command:
        """Runs `holdfast` with these arguments."""
        ours, theirs = socket.socketpair()
        request = {
            "arguments": arguments,
            "environment": clean_environment(environment),
            "folder": str(folder),
            "has_session": has_session,
        }
        with theirs:
            socket.send_fds(self._line, [json.dumps(request).encode()], [*streams, theirs.fileno()])
        return Command(ours)


@contextlib.contextmanager
def loaded_program() -> Iterator[LoadedProgram]:
    """Yields the preloaded program and waits for its end on exit."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, str(_PROGRAM)], stdin=theirs.fileno(), stdout=subprocess.DEVNULL
            )
        yield LoadedProgram(ours)
    process.wait(DEADLINE_S)


class LoadedShell(Shell):
    """A shell that forks its commands from the preloaded program."""

    def __init__(self, program: LoadedProgram, folder: Path, connect: str = "") -> None:
        super().__init__(folder, connect)
        self._program = program

    def run(self, *arguments: str, stdin: str = "", patience_s: float = DEADLINE_S, **environment: str) -> Done:
        """Runs a command with pipes for its streams and returns its output and exit status."""
        (told, tell), (out, to_out), (errors, to_errors) = os.pipe(), os.pipe(), os.pipe()
        os.write(tell, stdin.encode())
        theirs = (told, to_out, to_errors)
        command = self._program.start(arguments, theirs, {**self.environment, **environment}, self.folder)
        for descriptor in (tell, *theirs):
            os.close(descriptor)
        try:
            printed, said = _read_both(out, errors, patience_s)
            return Done(arguments, command.wait(patience_s), printed.decode(), said.decode())
        finally:
            command.kill()
            command.wait()
            os.close(out)
            os.close(errors)

    def _on_terminal(self, terminal: int, arguments: tuple[str, ...], environment: Mapping[str, str]) -> Running:
        return self._program.start(arguments, (terminal,) * 3, environment, self.folder, has_session=True)


def _read_both(out: int, errors: int, patience_s: float) -> tuple[bytes, bytes]:
    """Reads two pipes until both are closed."""
    texts, end_s = {out: b"", errors: b""}, time.monotonic() + patience_s
    with selectors.DefaultSelector() as selector:
        for pipe in texts:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(end_s - time.monotonic())
            assert ready, f"the command does not end; its output so far: {texts}"
            for key, _ in ready:
                part = os.read(key.fd, 65_536)
                texts[key.fd] += part
                if not part:
                    selector.unregister(key.fd)
    return texts[out], texts[errors]
