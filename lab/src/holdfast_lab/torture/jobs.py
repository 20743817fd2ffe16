"""The jobs that the workers of a torture run, and the records of their attempts.

Every attempt writes `Began` before it does anything else and `Ended` when it ends, each as one line, to a file of its
process. So a killed process leaves whole lines. The output of a successful attempt begins with its `run`, so that a
result names its attempt.
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

from holdfast.client.node_tokens import NodeTokens
from holdfast.ports import Assignment
from holdfast.worker.handlers import AttemptFailedError, Handler
from holdfast_lab.history.files import Writer, now_us
from holdfast_lab.history.records import BY_REQUEST, Began, Ended

#: The environment variable with the folder of the records.
RECORDS = "HOLDFAST_TORTURE_RECORDS"
#: The number of nodes of a worker, whose tokens then contain the index of the node; without it, one.
NODES = "TORTURE_NODES"
#: The types of the jobs.
WORK, POISON, TICK = "torture.work", "torture.poison", "torture.tick"
#: The route of jobs of the frozen contract, which does not depend on their type.
SIMULATED = "sim"
#: Separators of the optional padding after the run in a result: a size, and as many dots.
_GAP, _COLON = b" ", b":"


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """The instructions of a job: its payload, as JSON."""

    takes_ms: int = 0
    #: The number of first attempts that fail on purpose.
    fails: int = 0
    #: The size of the output beyond the run.
    output_bytes: int = 0


_TASK = msgspec.json.Decoder(Task)


def payload_of(task: Task) -> bytes:
    """Encodes a task as a client sends it."""
    return msgspec.json.encode(task)


def run_of(output: bytes) -> str:
    """Returns the run that produced this output."""
    run, _, padding = output.partition(_GAP)
    size, _, dots = padding.partition(_COLON)
    is_whole = not padding or (size.isdigit() and dots == b"." * int(size))
    return (run if is_whole else output).decode("ascii", "replace")


async def work(assignment: Assignment) -> bytes:
    """Sleeps, fails as often as requested, then returns its run."""
    with _attempt(assignment) as attempt:
        task = _TASK.decode(assignment.payload)
        await asyncio.sleep(task.takes_ms / 1_000)
        if assignment.attempt <= task.fails:
            raise AttemptFailedError(BY_REQUEST)
        return attempt.result(task.output_bytes)


async def poison(assignment: Assignment) -> bytes:
    """Always fails."""
    with _attempt(assignment):
        await asyncio.sleep(_TASK.decode(assignment.payload).takes_ms / 1_000)
        raise AttemptFailedError(BY_REQUEST)


async def tick(assignment: Assignment) -> bytes:
    """Runs one tick of a schedule."""
    with _attempt(assignment) as attempt:
        return attempt.result(0)


async def sim(assignment: Assignment) -> bytes:
    """Runs a job of the frozen contract, which has a duration but no payload."""
    with _attempt(assignment) as attempt:
        await asyncio.sleep(assignment.work_duration_ms / 1_000)
        return attempt.result(assignment.payload_size_bytes)


class _Attempt:
    """One recorded attempt."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.run = f"r{uuid.uuid4().hex}"  # the letter keeps it from being a number in JSON

    def begin(self, assignment: Assignment) -> None:
        record = Began(
            at_us=now_us(),
            run=self.run,
            job_id=assignment.job_id,
            token=NodeTokens(int(os.environ.get(NODES, "1"))).inner(assignment.token),
            worker=str(os.getpid()),
            attempt=assignment.attempt,
            wall_ms=time.time_ns() // 1_000_000,
        )
        self._writer.write(record)

    def end(self, outcome: str) -> None:
        self._writer.write(Ended(now_us(), self.run, outcome))

    def result(self, more_bytes: int) -> bytes:
        """Returns the output."""
        return self.run.encode() + (b"%b%d%b%b" % (_GAP, more_bytes, _COLON, b"." * more_bytes) if more_bytes else b"")


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
    """The file of this process."""
    folder = Path(os.environ[RECORDS])
    folder.mkdir(parents=True, exist_ok=True)
    return Writer(folder / f"worker-{os.getpid()}-{uuid.uuid4().hex[:8]}.jsonl")


class App:
    """The app for `holdfast worker -A holdfast_lab.torture.jobs:app`."""

    def handlers(self) -> Mapping[str, Handler]:
        """Returns the handlers by type; opens the records, because a server may have no free descriptor later."""
        if RECORDS in os.environ:
            _writer()
        return {WORK: Handler(work), POISON: Handler(poison), TICK: Handler(tick), SIMULATED: Handler(sim)}


app = App()
