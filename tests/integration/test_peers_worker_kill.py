"""The kill of a worker in the comparison, and the counts from the records of its jobs."""

import os
import sys
from pathlib import Path

import pytest

from holdfast_lab.peers import trial_environment, work
from holdfast_lab.peers.records import Record, read_records
from holdfast_lab.peers.worker_kill import summary
from holdfast_lab.peers.worker_process import worker

# A worker that starts a child in a process group of its own, as forking workers do; the child prints its process id.
FORKING = """
import subprocess, sys, time
child = "import os, time; os.setpgrp(); open('born', 'w').write(str(os.getpid())); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", child])
time.sleep(600)
"""


def start(index: int, session: int = 1) -> Record:
    return Record("start", index, session)


def end(index: int, session: int = 1) -> Record:
    return Record("end", index, session)


def test_jobs_are_counted_once_however_often_they_ran() -> None:
    """The summary counts finished, restarted, twice finished and lost jobs, and no probes."""
    records = [
        start(-1),
        end(-1),
        start(0),
        end(0),
        start(1),
        start(1, 2),
        end(1, 2),
        start(2),
        end(2),
        start(2),
        end(2),
    ]
    kill = summary(records, jobs=6, running=1, kept=2, waited_s=60.0)
    assert (kill.finished, kill.started_again, kill.finished_twice, kill.kept, kill.lost) == (3, 2, 1, 2, 1)


def test_job_that_finished_and_is_kept_all_the_same_is_not_lost() -> None:
    """A finished job that is still stored, because its end was not acknowledged, does not count as lost."""
    assert summary([start(0), end(0)], jobs=1, running=0, kept=1, waited_s=1.0).lost == 0


def test_records_are_read_back_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bench reads the records of a job as the job wrote them, under the session of its process."""
    monkeypatch.setenv(trial_environment.FOLDER, str(tmp_path))
    assert read_records() == []
    assert work.pause(7, 0) == 7
    assert read_records() == [start(7, os.getsid(0)), end(7, os.getsid(0))]


def test_killing_a_worker_kills_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killing a worker also kills its child in another process group."""
    monkeypatch.setenv(trial_environment.FOLDER, str(tmp_path))
    born = tmp_path / "born"
    os.mkfifo(born)
    with worker([sys.executable, "-c", FORKING], "worker") as process:
        child = int(born.read_text())
        assert is_running(child)
    assert process.returncode == -9
    assert not is_running(child)


def is_running(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
