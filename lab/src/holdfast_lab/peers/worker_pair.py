"""The two worker processes of a trial, warmed up: both have run jobs."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import DeadlineExceededError
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
def worker_pair(system: System) -> Iterator[tuple[Process, Process]]:
    """Two workers that run during the block; both have run jobs when it begins, and no job is left."""
    with worker(system.worker_command(), "first") as first, worker(system.worker_command(), "second") as second:
        _warm_up(system)
        _wait_for_both(system)
        yield first, second


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


def _wait_for_both(system: System) -> None:
    """Send short jobs, with negative indexes, until both workers have run some and none is left."""
    deadline, sent = time.monotonic() + _READY_S, 0
    while len({record.session for record in read_records()}) < 2:  # noqa: PLR2004
        system.enqueue_pauses(range(-sent - _PROBES, -sent), _PROBE_S)
        sent += _PROBES
        _wait_for_ends(sent, deadline)


def _wait_for_ends(count: int, deadline: float) -> None:
    while sum(record.what == "end" for record in read_records()) < count:
        if time.monotonic() > deadline:
            raise DeadlineExceededError(f"two workers did not both run jobs within {_READY_S:g} s")
        time.sleep(_POLL_S)
