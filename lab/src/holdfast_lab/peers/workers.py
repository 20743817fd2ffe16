"""The worker processes of a trial, warmed up: each has run jobs."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from holdfast.errors import DeadlineExceededError
from holdfast_lab.peers import trial_environment
from holdfast_lab.peers.records import read_records
from holdfast_lab.peers.system import System
from holdfast_lab.peers.worker_process import worker

Process = subprocess.Popen[str]

_WARM_CALLS = 20
_PATIENCE_S = 120.0
_READY_S = 60.0
_POLL_S = 0.05
_PROBES = 16
_PROBE_S = 0.02


@contextmanager
def running_workers(system: System) -> Iterator[list[Process]]:
    """Workers that run during the block; each has run jobs when it begins, and no job is left."""
    with ExitStack() as stack:
        commands = [system.worker_command() for _ in range(trial_environment.workers())]
        own = [command for command in commands if command]
        started = [stack.enter_context(worker(command, f"worker-{number}")) for number, command in enumerate(own)]
        _warm_up(system)
        _wait_for_all(system, len(started))
        yield started


def _warm_up(system: System) -> None:
    """Run some jobs one by one. A worker that starts may fail some: SAQ then sweeps jobs that are new to it."""
    deadline = time.monotonic() + _PATIENCE_S
    done = 0
    while done < _WARM_CALLS:
        try:
            system.submit_and_wait()
            done += 1
        except Exception:  # systems have different errors
            if time.monotonic() > deadline:
                raise


def _wait_for_all(system: System, count: int) -> None:
    """Send short jobs, with negative indexes, until this many workers have run some and none is left."""
    deadline, sent = time.monotonic() + _READY_S, 0
    while len({record.session for record in read_records()}) < count:
        system.enqueue_pauses(range(-sent - _PROBES, -sent), _PROBE_S)
        sent += _PROBES
        _wait_for_ends(sent, deadline)


def _wait_for_ends(count: int, deadline: float) -> None:
    while sum(record.what == "end" for record in read_records()) < count:
        if time.monotonic() > deadline:
            raise DeadlineExceededError(f"not every worker ran jobs within {_READY_S:g} s")
        time.sleep(_POLL_S)
