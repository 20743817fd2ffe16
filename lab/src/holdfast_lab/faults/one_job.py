"""A server and a worker as separate processes, and one job that runs during a fault."""

import asyncio
import contextlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import msgspec

from holdfast.proto import taskqueue_public_pb2 as pb
from holdfast.proto import taskqueue_public_pb2_grpc as rpc
from holdfast_lab.faults.worker_loss import TransitionTail
from holdfast_lab.measure.command import show
from holdfast_lab.measure.processes import child, module, ready_line
from holdfast_lab.measure.tables import markdown

_READY_S = 60.0
_END_S = 120.0
_LOOK_S = 0.02
_ENDS = frozenset({"DONE", "FAILED", "CANCELED"})
#: The log of all processes of one run; it has the transitions.
LOG_NAME = "log"


class JobOutcome(msgspec.Struct, frozen=True):
    """The outcome of the job: how often it was started, how often it lost its worker, and how it ended."""

    case: str
    starts: int
    losses: int
    end: str


@contextlib.contextmanager
def program(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A process of `holdfast` and its ready line."""
    command = module("holdfast", *arguments, "--log-format", "json")
    with (
        (folder / LOG_NAME).open("ab") as log,
        child(command, environment=environment, cwd=folder, errors=log) as process,
    ):
        yield process, ready_line(process)


def server_arguments(port: int, *more: str) -> tuple[str, ...]:
    """A server with its data on disk and its default settings, except for `more`."""
    return ("server", "--data", "data", "--port", str(port), "--no-http", *more)


async def running_job(folder: Path, target: str, ms: int) -> TransitionTail:
    """Submit a job of simulated work; returns once it runs."""
    async with grpc.aio.insecure_channel(target) as channel:
        stub: Any = rpc.TaskQueuePublicServiceStub(channel)
        spec = pb.JobSpec(job_type="sim", work_duration_ms=ms)
        reply = await stub.SubmitJob(pb.SubmitJobRequest(spec=spec), timeout=_READY_S, wait_for_ready=True)
    tail = TransitionTail(folder / LOG_NAME, reply.job_id)
    await tail.start(1)
    return tail


async def fate(case: str, tail: TransitionTail) -> JobOutcome:
    """Waits for the end of the job, and returns its outcome."""
    async with asyncio.timeout(_END_S):
        while not (lines := tail.lines()) or lines[-1]["new_state"] not in _ENDS:  # noqa: ASYNC110 - a file has no events
            await asyncio.sleep(_LOOK_S)
    starts = sum(line["new_state"] == "RUNNING" for line in lines)
    losses = sum((line["old_state"], line["new_state"]) == ("RUNNING", "QUEUED") for line in lines)
    return JobOutcome(case, starts, losses, lines[-1]["new_state"])


def show_fates(fates: Sequence[JobOutcome], *, as_json: bool) -> None:
    """Prints one table, or JSON."""
    head = ("what happens to a job that runs once", "starts", "lost its worker", "end")
    show(fates, markdown(head, map(msgspec.structs.astuple, fates)), as_json=as_json)
