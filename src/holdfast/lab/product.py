"""The product around the heart, measured through its own SDK and worker, against the bare echo and the bare disk.

Every load runs in a process of its own, as a user's program would; results are stored and everything is synced.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.lab.load import Echo, rate
from holdfast.lab.measures import Measure, at_least, at_most
from holdfast.lab.noop_app import URL_VARIABLE
from holdfast.lab.processes import echo_server, ended, holdfast_server

Say = Callable[[str], None]

_DRAIN_JOBS = 100_000
_CRASH_JOBS = 50
_CRASH_SLOTS = 10


async def one_at_a_time(runs: int, say: Say) -> list[Measure]:
    """Submits of which each waits for the one before it, over the socket of a directory and over gRPC."""
    local: list[float] = []
    remote: list[float] = []
    with echo_server() as echo_address, holdfast_server() as (address, _, data):
        echo = Echo(echo_address)
        for run in range(runs):
            say(f"one submit at a time, run {run + 1} of {runs}")
            limit = await rate(echo.echo, 2_000, 1)
            local.append(await _load(str(data), "one_by_one", 2_000, "rate") / limit)
            remote.append(await _load(f"holdfast://{address}", "one_by_one", 2_000, "rate") / limit)
    what = "one-by-one durable submits from the sync SDK, to a bare unary echo, 1 in flight"
    return [
        at_least(f"{what}: a directory that another process serves", local, 1.0),
        at_least(f"{what}: holdfast://", remote, 1.0),
    ]


async def round_trips(runs: int, say: Say) -> list[Measure]:
    """An idle system: one job submitted and waited for, in round trips of the echo."""
    half: list[float] = []
    most: list[float] = []
    with echo_server() as echo_address, holdfast_server() as (_, _, data), worker_process(str(data)):
        echo = Echo(echo_address)
        for run in range(runs):
            say(f"one job at a time, run {run + 1} of {runs}")
            bare = statistics.median(await _timed(echo, 1_000))
            times = sorted((await _run(str(data), "round_trips", 1_000))["seconds"])
            half.append(statistics.median(times) / bare)
            most.append(times[len(times) * 99 // 100] / bare)
    return [
        at_most("idle: submit one and wait for its result, p50, in unary round trips (p50)", half, 3, "×"),
        at_most("the same, p99, in unary round trips (p50)", most, 8, "×"),
    ]


async def embedded(runs: int, say: Say) -> list[Measure]:
    """Submits in the process that serves the directory itself, against bare syncs of the same disk."""
    values = []
    for run in range(runs):
        say(f"embedded submits, run {run + 1} of {runs}")
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            measured = await _run(str(Path(folder) / "data"), "beside_the_disk", 2_000)
        pairs = zip(measured["ours"], measured["bare"], strict=True)
        values.append(statistics.median(ours / bare for ours, bare in pairs))
    return [at_least("one-by-one durable submits, in one process, to bare appends with fdatasync", values, 0.5)]


async def throughput(runs: int, say: Say) -> list[Measure]:
    """A long queue drained by one worker process, and producer and worker at once."""
    drained: list[float] = []
    whole: list[float] = []
    with echo_server() as echo_address:
        echo = Echo(echo_address)
        await rate(echo.echo, 640, 64)
        for run in range(runs):
            say(f"drain and end to end, run {run + 1} of {runs}")
            before = await rate(echo.echo, 6_400, 64)
            with holdfast_server() as (_, _, data):
                await _run(str(data), "fill", _DRAIN_JOBS)
                with worker_process(str(data)):
                    drain = await _load(str(data), "drain", _DRAIN_JOBS, "jobs")
            with holdfast_server() as (_, _, data), worker_process(str(data)):
                jobs = await _load(str(data), "produce", _DRAIN_JOBS, "jobs")
            limit = (before + await rate(echo.echo, 6_400, 64)) / 2
            drained.append(drain / limit)
            whole.append(jobs / limit)
    return [
        at_least(
            f"drain of {_DRAIN_JOBS:,} queued no-op jobs, one worker process, to the unary echo, 64 in flight",
            drained,
            10,
        ),
        at_least("end to end, producer and one worker process at once, no-op functions, to the same", whole, 8),
    ]


async def lost_worker(runs: int, say: Say) -> list[Measure]:
    """One of two workers is killed while one-second jobs run and wait."""
    over: list[float] = []
    lost: list[float] = []
    for run in range(runs):
        say(f"worker killed, run {run + 1} of {runs}")
        seconds, done = await asyncio.to_thread(_kill_a_worker)
        # The killed one's slots are gone, and what it ran starts again: that is the work's own length.
        own = -(-_CRASH_JOBS // _CRASH_SLOTS)
        over.append(seconds - own)
        lost.append(float(_CRASH_JOBS - done))
    return [
        at_most(f"a worker killed while {_CRASH_JOBS} one-second jobs run and wait: jobs lost", lost, 0, ""),
        at_most("the same: seconds beyond the work's own length", over, 2, "s"),
    ]


def _kill_a_worker() -> tuple[float, int]:
    """Seconds from the kill until all are done, less what had been done before it; and how many are done."""
    with holdfast_server() as (_, _, data), worker_process(str(data), _CRASH_SLOTS):
        with worker_process(str(data), _CRASH_SLOTS) as victim:
            program = [sys.executable, "-P", "-m", "holdfast.lab.lost_worker", str(_CRASH_JOBS), str(victim.pid)]
            output = subprocess.run(program, env=_environment(str(data)), capture_output=True, text=True, check=True)
        answer = json.loads(output.stdout)
        return float(answer["seconds"]), int(answer["done"])


async def starts(runs: int, say: Say) -> list[Measure]:
    """How long it takes until Python has imported the SDK, and until the CLI has said what it can."""
    importing: list[float] = []
    helping: list[float] = []
    for run in range(runs):
        say(f"starts, run {run + 1} of {runs}")
        bare = _best([sys.executable, "-c", "pass"])
        importing.append(_best([sys.executable, "-c", "import holdfast"]) / bare)
        helping.append(_best([str(Path(sys.executable).with_name("holdfast")), "--help"]) / bare)
    return [
        at_most("import holdfast, to bare `python -c pass`", importing, 8, "×"),
        at_most("holdfast --help, to bare `python -c pass`", helping, 25, "×"),
    ]


def _best(command: Sequence[str], times: int = 5) -> float:
    """The shortest of some runs, since everything else that a machine does only makes them longer."""
    seconds = []
    # Where compiled code is not kept, every start would compile everything.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


@contextmanager
def worker_process(url: str, slots: int = 8) -> Iterator[subprocess.Popen[str]]:
    """One worker process on this url, once it can run jobs."""
    command = [sys.executable, "-P", "-m", "holdfast", "worker", "-A", "holdfast.lab.noop_app:app", "-c", str(slots)]
    process = subprocess.Popen(
        command, env=_environment(url), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with ended(process):
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "ready"
        yield process


def _environment(url: str) -> dict[str, str]:
    return os.environ | {URL_VARIABLE: url}


async def produced(url: str, count: int) -> float:
    """Jobs a second, submitted and done, of a producer in a process of its own."""
    return await _load(url, "produce", count, "jobs")


async def _load(url: str, what: str, count: int, key: str) -> float:
    return float((await _run(url, what, count))[key])


async def _run(url: str, what: str, count: int) -> dict[str, Any]:
    """What a load in a process of its own measured; it works in a directory beside the data, on the same disk."""
    command = [sys.executable, "-P", "-m", "holdfast.lab.sdk_load", what, str(count)]
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        process = await asyncio.create_subprocess_exec(
            *command, env=_environment(url), cwd=folder, stdout=subprocess.PIPE
        )
        output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{what} ended with status {process.returncode}")
    return dict(json.loads(output))


async def _timed(echo: Echo, count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        start = time.perf_counter()
        await echo.echo()
        seconds.append(time.perf_counter() - start)
    return seconds
