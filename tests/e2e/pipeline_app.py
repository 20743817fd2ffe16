"""What workers of the siege run: every attempt is written into a file before it does anything else."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from holdfast.ports import Assignment
from holdfast.worker.handlers import AttemptFailedError, Handler

#: The variable that names the file.
RUNS = "SIEGE_RUNS"


async def work(assignment: Assignment) -> bytes:
    """The payload says how long it takes, and how many attempts fail."""
    _write_down(assignment)
    takes_ms, fails = map(int, assignment.payload.split())
    await asyncio.sleep(takes_ms / 1_000)
    if assignment.attempt <= fails:
        raise AttemptFailedError("BY_REQUEST")
    return assignment.job_id.encode()


async def tick(assignment: Assignment) -> bytes:
    """One second of a schedule."""
    _write_down(assignment)
    return b""


def _write_down(assignment: Assignment) -> None:
    """One line in one write: a worker that is killed leaves all of it or nothing."""
    handle = os.open(os.environ[RUNS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, f"{assignment.job_id} {assignment.token}\n".encode())
    finally:
        os.close(handle)


def runs_in(file: Path) -> list[tuple[str, int]]:
    """Job and token of every attempt that began."""
    words = [line.split() for line in file.read_text().splitlines()]
    return [(job_id, int(token)) for job_id, token in words]


class App:
    """What `holdfast pipeline worker -A` is given."""

    def handlers(self) -> Mapping[str, Handler]:
        return {"work": Handler(work), "tick": Handler(tick)}


app = App()
