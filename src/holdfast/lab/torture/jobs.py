"""What the workers of a torture run, and what they write down of it.

Every attempt writes `Began` before it does anything else and `Ended` when it ends, each in one piece, into a file of
its process: whoever is killed leaves whole lines. What a good attempt returns begins with its `run`, so that a result
names the attempt that made it.
"""

import asyncio
import contextlib
import functools
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from holdfast.lab.history.files import Writer, now_us
from holdfast.lab.history.records import BY_REQUEST, Began, Ended
from holdfast.ports import Assignment
from holdfast.worker.handlers import AttemptFailedError, Handler

#: The variable that names the folder of the records.
RECORDS = "HOLDFAST_TORTURE_RECORDS"
#: The types of the jobs.
WORK, POISON, TICK = "torture.work", "torture.poison", "torture.tick"
#: What a worker calls jobs of the frozen contract, whatever type they have.
SIMULATED = "sim"
#: What follows the run in a result, if anything does.
_GAP = b" "


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job is asked to do: its payload, as JSON."""

    takes_ms: int = 0
    #: So many attempts fail by themselves, the first ones.
    fails: int = 0
    #: How much more than its run it returns.
    output_bytes: int = 0


_TASK = msgspec.json.Decoder(Task)


def payload_of(task: Task) -> bytes:
    """As a client sends it."""
    return msgspec.json.encode(task)


def run_of(output: bytes) -> str:
    """The attempt that returned this."""
    return output.partition(_GAP)[0].decode("ascii", "replace")


async def work(assignment: Assignment) -> bytes:
    """Takes its time, fails as often as it was asked to, then returns its run."""
    with _attempt(assignment) as attempt:
        task = _TASK.decode(assignment.payload)
        await asyncio.sleep(task.takes_ms / 1_000)
        if assignment.attempt <= task.fails:
            raise AttemptFailedError(BY_REQUEST)
        return attempt.result(task.output_bytes)


async def poison(assignment: Assignment) -> bytes:
    """Can only fail."""
    with _attempt(assignment):
        await asyncio.sleep(_TASK.decode(assignment.payload).takes_ms / 1_000)
        raise AttemptFailedError(BY_REQUEST)


async def tick(assignment: Assignment) -> bytes:
    """One tick of a schedule."""
    with _attempt(assignment) as attempt:
        return attempt.result(0)


async def sim(assignment: Assignment) -> bytes:
    """A job of the frozen contract, which carries no payload, only how long it takes."""
    with _attempt(assignment) as attempt:
        await asyncio.sleep(assignment.work_duration_ms / 1_000)
        return attempt.result(assignment.payload_size_bytes)


class _Attempt:
    """One attempt, written down."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.run = f"r{uuid.uuid4().hex}"  # so that it is no number in JSON, however it is drawn

    def begin(self, assignment: Assignment) -> None:
        record = Began(
            at_us=now_us(),
            run=self.run,
            job_id=assignment.job_id,
            token=assignment.token,
            worker=str(os.getpid()),
            attempt=assignment.attempt,
            wall_ms=time.time_ns() // 1_000_000,
        )
        self._writer.write(record)

    def end(self, outcome: str) -> None:
        self._writer.write(Ended(now_us(), self.run, outcome))

    def result(self, more_bytes: int) -> bytes:
        """What it returns."""
        return self.run.encode() + (_GAP + b"." * more_bytes if more_bytes else b"")


@contextlib.contextmanager
def _attempt(assignment: Assignment) -> Iterator[_Attempt]:
    attempt = _Attempt(_writer())
    attempt.begin(assignment)
    try:
        yield attempt
    except AttemptFailedError:
        attempt.end("failed")
        raise
    except BaseException:
        attempt.end("interrupted")
        raise
    attempt.end("done")


@functools.cache
def _writer() -> Writer:
    """The file of this process, from its first attempt on."""
    folder = Path(os.environ[RECORDS])
    folder.mkdir(parents=True, exist_ok=True)
    return Writer(folder / f"worker-{os.getpid()}-{uuid.uuid4().hex[:8]}.jsonl")


class App:
    """What `holdfast worker -A holdfast.lab.torture.jobs:app` is given."""

    def handlers(self) -> Mapping[str, Handler]:
        """By type."""
        return {WORK: Handler(work), POISON: Handler(poison), TICK: Handler(tick), SIMULATED: Handler(sim)}


app = App()
