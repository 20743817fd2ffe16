"""Workers as sessions of the operating system, so that one can be killed with all of its children."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.lab.peers import place

_STAT_SESSION = 3  # counted after the name of the command, which may hold blanks


@contextmanager
def worker(command: list[str], name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A running worker, its output in a file of the trial's folder; killed with the block."""
    with (place.folder() / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=place.folder(), start_new_session=True)
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """`kill -9` for the worker and every process that it has started."""
    for pid in _session_of(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _session_of(leader: int) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if _session(pid) == leader]


def _session(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(stat.rpartition(")")[2].split()[_STAT_SESSION])
