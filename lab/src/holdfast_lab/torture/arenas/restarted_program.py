"""A program that an arena starts itself, and replaces at once when it ends, until `stop`.

It does not outlive the process that started it, even if that is killed.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import ExitCode, FailedPreconditionError
from holdfast.process.supervised_process import ready_line
from holdfast_lab.measure.process_tree import argv
from holdfast_lab.measure.processes import spawned
from holdfast_lab.torture.arenas.expected_exits import ExpectedExits

HOLDFAST = (sys.executable, "-P", "-m", "holdfast")
#: Makes the program end with its parent.
_MORTAL = (setpriv, "--pdeathsig", "KILL") if (setpriv := shutil.which("setpriv")) else ()
#: Few descriptors, so that few connections reach the limits that the product derives from them, but more than any
#: program needs.
DESCRIPTORS = 512
_LIMITED = ("/bin/sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "limited")
START_S = 90.0
STOP_S = 45.0
_CHUNK_BYTES = 65_536
_RESTART_S = 0.1
_WORDS_BYTES = 400


@dataclass(frozen=True)
class ProgramSpec:
    """The role, name and command of a program.

    A program that `may_refuse` may exit at start because another process is down; it is started again until that
    process is up.
    """

    role: str
    name: str
    command: Sequence[str]
    may_refuse: bool = False


class RestartedProgram:
    """One program and its replacements; implements the port `ArenaProcess`."""

    def __init__(
        self, part: ProgramSpec, *, environment: Mapping[str, str], log: Path, expected_exits: ExpectedExits
    ) -> None:
        self.role = part.role
        self.name = part.name
        self._part = part
        self._environment = dict(environment)
        self.log = log
        self._expected_exits = expected_exits
        self._process: asyncio.subprocess.Process | None = None
        self._line: dict[str, Any] | None = None
        self._was_ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # -- the port `ArenaProcess`

    def pid(self) -> int:
        """Returns the pid of the process, or 0 while there is none."""
        process = self._process
        return process.pid if process is not None and process.returncode is None and argv(process.pid) else 0

    def is_ready(self) -> bool:
        """Whether the current process has printed its ready line."""
        return self._line is not None and self.pid() != 0

    # -- life cycle

    def tell(self, **variables: str) -> None:
        """Adds environment variables, before the program is started."""
        self._environment |= variables

    async def start(self) -> dict[str, Any]:
        """Starts the program, and returns its first ready line."""
        self._task = asyncio.create_task(self._keep())
        ready = asyncio.create_task(self._was_ready.wait())
        try:
            await asyncio.wait([ready, self._task], timeout=START_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if self._line is None:
            raise FailedPreconditionError(f"{self.name} does not start: {self._last_words()}", reason="ARENA_FAILED")
        return self._line

    async def stop(self) -> list[str]:
        """Sends TERM and waits for the end; returns the problems."""
        self._stopping.set()
        process = self._process
        if self._task is None or process is None:
            return []
        is_starting = self._line is None
        self._send(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._task), STOP_S)
        if not self._task.done():
            self._send(signal.SIGKILL)
            await self._task
            return [f"{self.name} did not end within {STOP_S:g} s of TERM and had to be killed"]
        status = process.returncode
        # A process that does not handle TERM yet is ended by the signal.
        is_fine = (
            status == 0 or (is_starting and status == -signal.SIGTERM) or self._expected_exits.is_expected(process.pid)
        )
        return [] if is_fine else [f"{self.name} ended with {status} after TERM"]

    async def _keep(self) -> None:
        while not self._stopping.is_set():
            process = self._process = await self._spawn()
            if self._stopping.is_set():  # `stop` was called during the spawn
                self._send(signal.SIGTERM)
            reading = asyncio.create_task(self._read(process))
            status = await process.wait()
            reading.cancel()
            was_ready, self._line = self._line is not None, None
            if self._stopping.is_set():
                return
            if not (self._part.may_refuse and not was_ready and status == ExitCode.UNREACHABLE):
                self._expected_exits.ended(self.name, process.pid, status, self._last_words() if status > 0 else "")
            if not self._was_ready.is_set():
                return
            await asyncio.sleep(_RESTART_S)

    async def _spawn(self) -> asyncio.subprocess.Process:
        command = (*_MORTAL, *_LIMITED, *self._part.command)
        return await spawned(command, environment=self._environment, log=self.log)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Reads the output to its end; the first ready line makes the program ready."""
        assert process.stdout is not None
        text = b""
        while chunk := await process.stdout.read(_CHUNK_BYTES):
            *whole, text = (text + chunk).split(b"\n")
            text = text[-_CHUNK_BYTES:]
            if self._line is None:
                self._line = next(filter(None, map(ready_line, whole)), None)
                if self._line is not None:
                    self._was_ready.set()

    def _send(self, number: signal.Signals) -> None:
        if pid := self.pid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _last_words(self) -> str:
        if not self.log.exists():
            return ""
        return self.log.read_text(errors="replace")[-_WORDS_BYTES:].replace("\n", " / ")
