"""A helper: a child process that does one piece of work beside a server, and exits.

The helper is spawned, reads no input and ends with its parent (its standard input is its lifeline). Its last line on
standard error is the problem, if it exits with another status than 0.
"""

import asyncio
import contextlib
import subprocess
from collections.abc import Callable

from holdfast.journal.descriptors import DescriptorReserve
from holdfast.observe.logs import get_logger

#: How long a killed helper may take to exit.
_GONE_S = 5.0


class HelperProcess:
    """Starts one helper at a time and watches it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        command: Callable[[], list[str]],
        descriptors: DescriptorReserve,
        *,
        failed: str = "snapshot_failed",
    ) -> None:
        """`command` is called for every helper; `failed` is the log event of a failure."""
        self._failed = failed
        self._descriptors = descriptors
        self._loop = loop
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    def start(self, done: Callable[[str], None]) -> None:
        """Runs a helper; `done` receives the problem, empty if there was none."""
        self._task = self._loop.create_task(self._run(done))

    def stop(self) -> None:
        """Kills a helper that runs; `done` is not called."""
        self._is_stopping = True
        self._kill()

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                self._process.kill()

    async def ended(self) -> None:
        """Waits until no helper is left; the loop should not be closed before that."""
        if self._task is not None:
            # Bounded: a program that embeds this one may reap children itself, and then the exit is never seen.
            await asyncio.wait([self._task], timeout=_GONE_S)
            self._task.cancel()

    async def _run(self, done: Callable[[str], None]) -> None:
        problem = await self._make()
        if self._is_stopping:
            return
        if problem:
            get_logger().error(self._failed, message=problem)
        done(problem)

    async def _make(self) -> str:
        """Runs one helper to its end, and returns the problem, empty if there was none."""
        try:
            self._process = await self._started(self._command())
        except Exception as error:  # noqa: BLE001 - no memory, descriptor, thread or process: reported to the caller
            return f"no process could be started: {error}"
        if self._is_stopping:
            self._kill()
        assert self._process.stderr is not None
        errors = await self._process.stderr.read()
        status = await self._process.wait()
        lines = errors.decode(errors="replace").strip().splitlines() or [f"exit status {status}"]
        return lines[-1] if status else ""

    async def _started(self, command: list[str]) -> asyncio.subprocess.Process:
        """Starts the helper; if that fails, tries once more with the descriptors that are held for the journal.

        Any error of the system counts: uvloop reports a missing descriptor as "Unknown error -1".
        """
        try:
            return await _start(command)
        except OSError:
            self._descriptors.lend()
        return await _start(command)


async def _start(command: list[str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
