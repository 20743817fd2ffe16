"""Makes snapshots, or indexes of segments, in a process of its own, which ends with its parent."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from holdfast.core.ledger import LedgerConfig
from holdfast.errors import HoldfastError
from holdfast.journal.descriptors import DescriptorReserve, is_no_descriptor
from holdfast.journal.os_disk import OsDisk
from holdfast.ledger.job_index import build_missing
from holdfast.ledger.snapshots import PART_BYTES_MIN, failure_text, take_snapshot
from holdfast.observe.logs import get_logger
from holdfast.process.child_command import child_command
from holdfast.process.lifeline import die_with_parent, lifeline

#: What such a process makes.
SNAPSHOT, INDEX = "snapshot", "index"
#: Indexes are in no hurry, and nothing waits for them.
_INDEX_NICENESS = 10
#: How long a maker that was killed may take to be gone.
_GONE_S = 5.0


class SnapshotProcess:
    """Starts one maker at a time and watches it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        command: Callable[[], list[str]],
        descriptors: DescriptorReserve,
        *,
        failed: str = "snapshot_failed",
    ) -> None:
        """`command` is asked for anew for every maker; `failed` is the event that tells of a failure."""
        self._failed = failed
        self._descriptors = descriptors
        self._loop = loop
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    def start(self, done: Callable[[str], None]) -> None:
        """Runs the maker; `done` hears what went wrong, or nothing."""
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

    async def _run(self, done: Callable[[str], None]) -> None:
        problem = await self._make()
        if self._is_stopping:
            return
        if problem:
            get_logger().error(self._failed, message=problem)
        done(problem)

    async def _make(self) -> str:
        """Runs one maker to its end; what went wrong, or nothing."""
        try:
            self._process = await self._started(self._command())
        except Exception as error:  # noqa: BLE001 - no memory, descriptor, thread or process: whoever waits is told
            return f"no process could be started: {error}"
        if self._is_stopping:
            self._kill()
        assert self._process.stderr is not None
        errors = await self._process.stderr.read()
        status = await self._process.wait()
        lines = errors.decode(errors="replace").strip().splitlines() or [f"exit status {status}"]
        return lines[-1] if status else ""

    async def _started(self, command: list[str]) -> asyncio.subprocess.Process:
        """Starts the maker, if need be with descriptors that are held for the journal."""
        try:
            return await _start(command)
        except OSError as error:
            if not is_no_descriptor(error):
                raise
        self._descriptors.lend()
        return await _start(command)


async def _start(command: list[str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def maker_command(directory: str, bytes_held: int) -> list[str]:
    """The command of a maker beside a server that holds so much: a sixth of it is for jobs.

    With its program and the chunks that it copies, the maker stays below a third of a large server.
    """
    return child_command(__name__, SNAPSHOT, directory, str(max(bytes_held // 6, PART_BYTES_MIN)))


def index_command(directory: str) -> list[str]:
    """The command of a maker of indexes."""
    return child_command(__name__, INDEX, directory)


def main(product: str, directory: str, part_bytes: str = str(PART_BYTES_MIN)) -> int:
    """The maker: one snapshot of everything sealed, holding about so much of jobs at a time; or the missing indexes."""
    die_with_parent()
    lifeline()
    disk = OsDisk(Path(directory))
    try:
        if product == INDEX:
            os.nice(_INDEX_NICENESS)
            build_missing(disk)
        else:
            take_snapshot(disk, LedgerConfig(), int(part_bytes))
    except HoldfastError as error:
        print(error.message if product == INDEX else failure_text(error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
