"""A program of an arena's own: whoever ends is replaced at once, until `stop`.

It does not outlive the process that started it, even a killed one.
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
from holdfast.lab.compare.process_tree import argv
from holdfast.lab.torture.arenas.deaths import Deaths
from holdfast.process.kept_process import ready_line

HOLDFAST = (sys.executable, "-P", "-m", "holdfast")
#: Ends with whoever starts it.
_MORTAL = (setpriv, "--pdeathsig", "KILL") if (setpriv := shutil.which("setpriv")) else ()
#: Few descriptors, so that a crowd of connections can use them up; more than any of them needs.
DESCRIPTORS = 512
_LIMITED = ("/bin/sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "limited")
START_S = 90.0
STOP_S = 45.0
_CHUNK_BYTES = 65_536
_RESTART_S = 0.1
_WORDS_BYTES = 400


@dataclass(frozen=True)
class Part:
    """What a program is started with, and what it is called.

    One that `may_refuse` may find nobody when it begins, and say so: it is started again until somebody is there.
    """

    role: str
    name: str
    command: Sequence[str]
    may_refuse: bool = False


class KeptProgram:
    """One seat. Implements the port `Process`."""

    def __init__(self, part: Part, *, environment: Mapping[str, str], log: Path, deaths: Deaths) -> None:
        self.role = part.role
        self.name = part.name
        self._part = part
        self._environment = dict(environment)
        self.log = log
        self._deaths = deaths
        self._process: asyncio.subprocess.Process | None = None
        self._line: dict[str, Any] | None = None
        self._was_ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # -- the seat

    def pid(self) -> int:
        """The process; 0 while there is none."""
        process = self._process
        return process.pid if process is not None and process.returncode is None and argv(process.pid) else 0

    def is_ready(self) -> bool:
        """Whether whoever has it now has said that it works."""
        return self._line is not None and self.pid() != 0

    # -- its life

    def tell(self, **variables: str) -> None:
        """More of its environment, before it is started."""
        self._environment |= variables

    async def start(self) -> dict[str, Any]:
        """What it says once it is ready for the first time."""
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
        """TERM, and its end; says what was wrong with that."""
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
        # One that has not got so far as to listen for TERM just ends.
        is_fine = status == 0 or (is_starting and status == -signal.SIGTERM) or self._deaths.is_expected(process.pid)
        return [] if is_fine else [f"{self.name} ended with {status} after TERM"]

    async def _keep(self) -> None:
        while not self._stopping.is_set():
            process = self._process = await self._spawn()
            if self._stopping.is_set():  # it came while the process was being made
                self._send(signal.SIGTERM)
            reading = asyncio.create_task(self._read(process))
            status = await process.wait()
            reading.cancel()
            was_ready, self._line = self._line is not None, None
            if self._stopping.is_set():
                return
            if not (self._part.may_refuse and not was_ready and status == ExitCode.UNREACHABLE):
                self._deaths.ended(self.name, process.pid, status, self._last_words() if status > 0 else "")
            if not self._was_ready.is_set():
                return
            await asyncio.sleep(_RESTART_S)

    async def _spawn(self) -> asyncio.subprocess.Process:
        with self.log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *_MORTAL,
                *_LIMITED,
                *self._part.command,
                cwd=self.log.parent,
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # a Ctrl-C at the terminal is for the lab, which ends it
            )

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """To the end of what it prints; the first line that says so makes it ready."""
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
