"""Workers in sessions of their own, so that one can be killed with all of its children."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from holdfast_lab.measure.process_tree import SESSION, STATE, all_processes
from holdfast_lab.measure.processes import child
from holdfast_lab.peers import trial_environment

_DEAD = "ZX"  # states of a process that waits to be reaped
_POLL_S = 0.001


@contextmanager
def worker(command: list[str], name: str) -> Iterator[subprocess.Popen[str]]:
    """A running worker that writes into a file of the trial's folder; killed with the block."""
    folder = trial_environment.folder()
    with (folder / f"{name}.log").open("wb") as log, child(command, output=log, errors=log, cwd=folder) as process:
        try:
            yield process
        finally:
            kill(process)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill the worker and every process that it has started; all have ended when this returns."""
    while pids := _alive_in(process.pid):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)
    process.wait()


def _alive_in(session: int) -> list[int]:
    return [pid for pid, fields in all_processes() if int(fields[SESSION]) == session and fields[STATE] not in _DEAD]
