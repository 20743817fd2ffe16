"""Kill of one of two workers under load, and the outcome of its jobs."""

import time
from collections import Counter

import msgspec

from holdfast.errors import DeadlineExceededError
from holdfast_lab.peers.records import Record, read_records
from holdfast_lab.peers.system import System
from holdfast_lab.peers.worker_process import kill
from holdfast_lab.peers.workers import running_workers

JOBS = 50
JOB_S = 1.0
CAP_S = 60.0
_READY_S = 60.0
_POLL_S = 0.05


class KillOutcome(msgspec.Struct, frozen=True):
    """The number of jobs by outcome, `waited_s` after the kill."""

    jobs: int
    running: int  # in the killed worker, at the kill
    finished: int
    started_again: int
    finished_twice: int
    kept: int  # unfinished ones that the system still knows, given-up ones included
    waited_s: float

    @property
    def lost(self) -> int:
        return max(0, self.jobs - self.finished - self.kept)


def kill_worker(system: System, jobs: int = JOBS, job_s: float = JOB_S, cap_s: float = CAP_S) -> KillOutcome:
    """Kill one of two workers during its first jobs, and wait at most `cap_s` until all jobs have finished."""
    with running_workers(system) as (victim, _):
        system.enqueue_pauses(range(jobs), job_s)
        _wait_for_start(victim.pid)
        time.sleep(job_s / 2)
        kill(victim)
        killed, running = time.monotonic(), _running(read_records(), victim.pid)
        while (waited_s := time.monotonic() - killed) < cap_s and len(_ends(read_records())) < jobs:
            time.sleep(_POLL_S)
        return summary(read_records(), jobs, running, system.count_kept(), waited_s)


def summary(records: list[Record], jobs: int, running: int, kept: int, waited_s: float) -> KillOutcome:
    """Count the records of the jobs."""
    starts = Counter(record.index for record in records if record.what == "start" and record.index >= 0)
    ends = _ends(records)
    return KillOutcome(
        jobs=jobs,
        running=running,
        finished=len(ends),
        started_again=sum(count > 1 for count in starts.values()),
        finished_twice=sum(count > 1 for count in ends.values()),
        kept=kept,
        waited_s=waited_s,
    )


def _ends(records: list[Record]) -> Counter[int]:
    return Counter(record.index for record in records if record.what == "end" and record.index >= 0)


def _running(records: list[Record], session: int) -> int:
    mine = [record for record in records if record.session == session and record.index >= 0]
    return sum(1 if record.what == "start" else -1 for record in mine)


def _wait_for_start(session: int) -> None:
    deadline = time.monotonic() + _READY_S
    while not _running(read_records(), session):
        if time.monotonic() > deadline:
            raise DeadlineExceededError(f"the worker to be killed ran nothing within {_READY_S:g} s")
        time.sleep(_POLL_S / 5)
