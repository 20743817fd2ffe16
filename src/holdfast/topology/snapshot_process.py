"""Makes snapshots in a process of its own, which ends with its parent."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from holdfast.coordinator.snapshots import take_snapshot
from holdfast.core.ledger import LedgerConfig
from holdfast.errors import HoldfastError
from holdfast.journal.os_disk import OsDisk
from holdfast.logs import get_logger
from holdfast.worker.lifeline import die_with_parent, lifeline

#: How long a maker that was killed may take to be gone.
_GONE_S = 5.0


class SnapshotProcess:
    """Starts one maker at a time and watches it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, directory: str) -> None:
        self._loop = loop
        self._directory = directory
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    def start(self, done: Callable[[bool], None]) -> None:
        """Runs the maker; `done` hears whether it ended well."""
        self._task = self._loop.create_task(self._run(done))

    def stop(self) -> None:
        """Ends a maker that is under way; it leaves nothing behind but a temporary file."""
        self._is_stopping = True
        self._kill()

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                self._process.kill()

    async def ended(self) -> None:
        """Returns once no maker is left: its loop should not be closed before that."""
        if self._task is not None:
            # A program that embeds us may keep the news of dead children to itself; nobody waits for ever for it.
            await asyncio.wait([self._task], timeout=_GONE_S)
            self._task.cancel()

    async def _run(self, done: Callable[[bool], None]) -> None:
        problem = await self._make()
        if self._is_stopping:
            return
        if problem:
            get_logger().error("snapshot_failed", message=problem)
        done(not problem)

    async def _make(self) -> str:
        """Runs one maker to its end; what went wrong, or nothing."""
        command = [sys.executable, "-m", "holdfast.topology.snapshot_process", self._directory]
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
        except OSError as error:  # no memory, no descriptor, no process to be had for now
            return f"no process could be started: {error}"
        if self._is_stopping:
            self._kill()
        assert self._process.stderr is not None
        errors = await self._process.stderr.read()
        status = await self._process.wait()
        lines = errors.decode(errors="replace").strip().splitlines() or [f"exit status {status}"]
        return lines[-1] if status else ""


def main(directory: str) -> int:
    """The maker: one snapshot of everything sealed."""
    die_with_parent()
    lifeline()
    try:
        take_snapshot(OsDisk(Path(directory)), LedgerConfig())
    except HoldfastError as error:
        print(error.message, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
