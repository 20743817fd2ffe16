"""A child process that is restarted whenever it ends, until `stop`.

The child ends with its parent, even if the parent is killed: its command has `--lifeline`, and it exits when its
standard input closes. It has its own session, so that Ctrl-C at the terminal reaches it once, through its parent. Its
standard output is read up to the ready line; later output is discarded. It logs to the same stderr as its parent.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from holdfast.errors import ExitCode, FailedPreconditionError, HoldfastError, InvalidArgumentError, UnavailableError
from holdfast.observe.logs import get_logger

_RESTART_S_MIN, _RESTART_S_MAX = 0.1, 1.0
_CHUNK_BYTES = 65_536
#: How long the output of an exited process is still read.
_LAST_WORDS_S = 0.5

#: Exit codes of a program that refuses its options or environment; a restart would fail in the same way.
_REFUSALS: Mapping[int, type[HoldfastError]] = MappingProxyType(
    {
        ExitCode.USAGE: InvalidArgumentError,
        ExitCode.UNREACHABLE: UnavailableError,
        ExitCode.REFUSED: FailedPreconditionError,
    }
)


class ProcessSpec(msgspec.Struct, frozen=True):
    """The command of a child; `environment` is added to the environment of this process."""

    name: str
    command: list[str]
    environment: dict[str, str] = {}
    #: Variables that receive the ports of the first ready line, so that a restarted child listens on the same ports.
    port_variable: str = ""
    http_port_variable: str = ""
    #: Arguments of the runs before the first ready line. A process that is restarted later does without them.
    until_ready: list[str] = []
    #: Whether exit code 0 is an intended end, after which the process is not restarted.
    may_leave: bool = False


class SupervisedProcess:
    """One role. `settled` is set after its first ready line (`line`), or when it refuses to start (`refusal`).

    `listening` is set after its first line with addresses (`listening_line`), which may precede the ready line, and
    whenever `settled` is.
    """

    def __init__(self, role: ProcessSpec) -> None:
        self.role = role
        self.settled = asyncio.Event()
        self.listening = asyncio.Event()
        self.line: dict[str, Any] | None = None
        self.listening_line: dict[str, Any] | None = None
        self.refusal: HoldfastError | None = None
        self._environment = {**os.environ, **role.environment}
        self._process: asyncio.SubprocessTransport | None = None
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the process, and the task that restarts it."""
        self._task = asyncio.create_task(self._keep())

    def stop(self) -> None:
        """Sends TERM: the first one stops the process gracefully; the process defines the effect of a second one."""
        self._stopping.set()
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Kills the process."""
        self._stopping.set()
        self._send(signal.SIGKILL)

    async def ended(self) -> None:
        """Waits until the process has ended after `stop`."""
        if self._task is not None:
            await asyncio.shield(self._task)

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _keep(self) -> None:
        delay_s = _RESTART_S_MIN
        while not self._stopping.is_set():
            was_ready, status = await self._live()
            if self._stopping.is_set():
                return
            if self.line is None and status in _REFUSALS:
                self._refuse(status)
                return
            if self.role.may_leave and status == 0:
                get_logger().info("role_left", role=self.role.name, message="it ended on request; it is not restarted")
                self._settle()
                return
            delay_s = _RESTART_S_MIN if was_ready else min(2 * delay_s, _RESTART_S_MAX)
            pid = self._process.get_pid() if self._process is not None else 0
            get_logger().warning("role_died", role=self.role.name, pid=pid, status=status, message="restarting it")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay_s)

    def _refuse(self, status: int) -> None:
        message = f"the {self.role.name} cannot start; see its message above"
        self.refusal = _REFUSALS[status](message, reason="ROLE_REFUSED", details={"role": self.role.name})
        self._settle()

    def _settle(self) -> None:
        self.listening.set()
        self.settled.set()

    async def _live(self) -> tuple[bool, int]:
        """Runs the process once; returns whether it was ready, and its exit status."""
        loop = asyncio.get_running_loop()
        try:
            process, life = await loop.subprocess_exec(
                lambda: _ProcessRun(self._is_listening, self._is_ready),
                *self.role.command,
                *([] if self.line is not None else self.role.until_ready),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:  # the process cannot be created at the moment
            get_logger().warning("role_unstarted", role=self.role.name, message=str(error))
            return False, -1
        self._process = process
        if self._stopping.is_set():  # stop was called while the process was being created
            self._send(signal.SIGTERM)
        await life.exited.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(life.silent.wait(), _LAST_WORDS_S)
        status = process.get_returncode()
        assert status is not None
        process.close()
        return life.is_ready, status

    def _is_ready(self, line: dict[str, Any]) -> None:
        get_logger().info("role_ready", role=self.role.name, pid=line.get("pid", 0), grpc=line.get("grpc", ""))
        self._is_listening(line)
        if self.line is None:
            self.line = line
        self._settle()

    def _is_listening(self, line: dict[str, Any]) -> None:
        if self.listening_line is None:
            self.listening_line = line
            for variable, protocol in ((self.role.port_variable, "grpc"), (self.role.http_port_variable, "http")):
                if variable and protocol in line:
                    self._environment[variable] = str(line[protocol]).rpartition(":")[2]
        self.listening.set()


class _ProcessRun(asyncio.SubprocessProtocol):
    """One run of a process: passes on its lines up to the ready line, and signals its end.

    `exited` may be set long before `silent` if a process that a job forked still holds the pipes.
    """

    def __init__(
        self, take_listening: Callable[[dict[str, Any]], None], take_ready: Callable[[dict[str, Any]], None]
    ) -> None:
        self.is_ready = False
        self.exited = asyncio.Event()
        self.silent = asyncio.Event()
        self._take_listening = take_listening
        self._take_ready = take_ready
        self._text = b""

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Searches for the ready line; later output is dropped."""
        if self.is_ready:
            return
        *whole, text = (self._text + data).split(b"\n")
        self._text = text[-_CHUNK_BYTES:]  # an app may print an endless line
        for line in whole:
            if (listening := _event(line, "listening")) is not None:
                self._take_listening(listening)
            elif (ready := ready_line(line)) is not None:
                self.is_ready = True
                self._take_ready(ready)
                return

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Notes the end of standard output."""
        if fd == 1:
            self.silent.set()

    def process_exited(self) -> None:
        """Notes that the exit status is known."""
        self.exited.set()


def ready_line(text: bytes) -> dict[str, Any] | None:
    """Returns the decoded ready line of a program; None for any other text."""
    return _event(text, "ready")


def _event(text: bytes, name: str) -> dict[str, Any] | None:
    try:
        line = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return line if isinstance(line, dict) and line.get("event") == name else None
