"""A server and a worker as processes of their own, and one job that runs while something happens to them."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import msgspec

from holdfast.lab.worker_loss import TransitionTail
from holdfast.proto import taskqueue_public_pb2 as pb
from holdfast.proto import taskqueue_public_pb2_grpc as rpc

_READY_S = 60.0
_END_S = 120.0
_LOOK_S = 0.02
_ENDS = frozenset({"DONE", "FAILED", "CANCELED"})
#: The log of every server of one run, which tells of transitions.
LOG_NAME = "log"


class Fate(msgspec.Struct, frozen=True):
    """What became of the job: how often it was started, how often it lost its worker, and how it ended."""

    case: str
    starts: int
    losses: int
    end: str


class Program:
    """One process of `holdfast`."""

    def __init__(self, process: asyncio.subprocess.Process, line: Mapping[str, Any]) -> None:
        self._process = process
        self.ready = line

    async def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Signals it and waits for its end."""
        if self._process.returncode is None:
            self._process.send_signal(number)
        await self._process.wait()


async def start(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Program:
    """A process that has said that it is ready."""
    with (folder / LOG_NAME).open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "holdfast", *arguments, "--log-format", "json"),
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_READY_S):
            return Program(process, json.loads(await process.stdout.readline()))
    except BaseException:
        process.kill()
        await process.wait()
        raise


@contextlib.asynccontextmanager
async def program(folder: Path, *arguments: str) -> AsyncIterator[Program]:
    """The same, for the length of a block."""
    started = await start(folder, *arguments)
    try:
        yield started
    finally:
        await started.end(signal.SIGKILL)


def server_arguments(port: int, *more: str) -> tuple[str, ...]:
    """A server with its data on disk and its default settings, but for `more`."""
    return ("server", "--data", "data", "--port", str(port), "--no-http", *more)


async def running_job(folder: Path, target: str, ms: int) -> TransitionTail:
    """Submits a job of simulated work; returns once it runs."""
    async with grpc.aio.insecure_channel(target) as channel:
        stub: Any = rpc.TaskQueuePublicServiceStub(channel)
        spec = pb.JobSpec(job_type="sim", work_duration_ms=ms)
        reply = await stub.SubmitJob(pb.SubmitJobRequest(spec=spec), timeout=_READY_S, wait_for_ready=True)
    tail = TransitionTail(folder / LOG_NAME, reply.job_id)
    await tail.start(1)
    return tail


async def fate(case: str, tail: TransitionTail) -> Fate:
    """What became of the job, once it has ended."""
    async with asyncio.timeout(_END_S):
        # Other processes write the log, and no event tells of it.
        while not (lines := tail.lines()) or lines[-1]["new_state"] not in _ENDS:  # noqa: ASYNC110 - a file tells nobody
            await asyncio.sleep(_LOOK_S)
    starts = sum(line["new_state"] == "RUNNING" for line in lines)
    losses = sum((line["old_state"], line["new_state"]) == ("RUNNING", "QUEUED") for line in lines)
    return Fate(case, starts, losses, lines[-1]["new_state"])


def say(fates: list[Fate], *, as_json: bool) -> None:
    """Prints one table, or JSON."""
    if as_json:
        sys.stdout.write(msgspec.json.encode(fates).decode() + "\n")
        return
    rows = [f"| {one.case} | {one.starts} | {one.losses} | {one.end} |" for one in fates]
    head = ["| what happens to a job that runs once | starts | lost its worker | end |", "|---|---|---|---|"]
    sys.stdout.write("\n".join([*head, *rows]) + "\n")
