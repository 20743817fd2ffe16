"""Workers as sessions of the operating system, so that one can be killed with all of its children."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.lab.peers import place

_ALIVE = "RSDTtIK"  # states of a process; not among them are Z and X, for the dead
_POLL_S = 0.001


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
    """`kill -9` for the worker and every process that it has started; all are gone when this returns."""
    while pids := _alive_in(process.pid):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)
    process.wait()


def _alive_in(session: int) -> list[int]:
    """Processes of the session that are not merely waiting to be reaped."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if _state_and_session(pid) in ((state, session) for state in _ALIVE)]


def _state_and_session(pid: int) -> tuple[str, int]:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "", 0
    fields = stat.rpartition(")")[2].split()  # what stands before is the command, which may hold blanks
    return fields[0], int(fields[3])
