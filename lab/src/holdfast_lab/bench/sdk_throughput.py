"""Measures through the SDK and worker processes, against the bare echo and the bare disk.

Every load runs in a process of its own, as a user's program would; results are stored and everything is synced.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast_lab.measure.echo import Baseline, Echo
from holdfast_lab.measure.measures import Measure, at_least, at_most
from holdfast_lab.measure.numbers import percentile
from holdfast_lab.measure.processes import (
    URL_VARIABLE,
    echo_server,
    holdfast_server,
    module,
    noop_worker,
    output_of,
)
from holdfast_lab.measure.rounds import Say, announced
from holdfast_lab.measure.timing import durations, rate

_DRAIN_JOBS = 100_000
_CRASH_JOBS = 50
_CRASH_SLOTS = 10


async def one_at_a_time(runs: int, say: Say) -> list[Measure]:
    """Submits of which each waits for the one before it, over the socket of a directory and over `holdfast://`."""
    links: dict[str, dict[str, list[float]]] = {}
    with echo_server() as echo_address, holdfast_server() as server:
        echo = Echo(echo_address)
        for _ in announced("one submit at a time", runs, say):
            limit = await rate(echo.echo, 2_000, 1)
            for link, url in (
                ("a directory that another process serves", str(server.data)),
                ("holdfast://", server.url),
            ):
                found = links.setdefault(link, {"echo": [], "disk": []})
                found["echo"].append((await loaded(url, "one_by_one", 2_000))["rate"] / limit)
                found["disk"].append(_beside_the_disk(await loaded(url, "beside_the_disk", 2_000)))
    what = "one-by-one durable submits from the sync SDK"
    return [
        *(
            at_least(f"{what}, to a bare unary echo, 1 in flight: {link}", found["echo"], 1.0)
            for link, found in links.items()
        ),
        *(
            at_least(f"{what}, to bare appends with fdatasync: {link}", found["disk"], 0.4)
            for link, found in links.items()
        ),
    ]


def _beside_the_disk(measured: dict[str, Any]) -> float:
    """The median ratio of our rate to that of bare appends, which alternate with ours."""
    return float(statistics.median(ours / bare for ours, bare in zip(measured["ours"], measured["bare"], strict=True)))


async def round_trips(runs: int, say: Say) -> list[Measure]:
    """Latency of an idle system: one job submitted and waited for, in round trips of the echo."""
    half: list[float] = []
    most: list[float] = []
    with echo_server() as echo_address, holdfast_server() as server, noop_worker(str(server.data)):
        echo = Echo(echo_address)
        for _ in announced("one job at a time", runs, say):
            bare = statistics.median(await durations(echo.echo, 1_000))
            times = sorted((await loaded(str(server.data), "round_trips", 1_000))["seconds"])
            half.append(percentile(times, 0.5) / bare)
            most.append(percentile(times, 0.99) / bare)
    return [
        at_most("idle: submit one and wait for its result, p50, in unary round trips (p50)", half, 3),
        at_most("the same, p99, in unary round trips (p50)", most, 8),
    ]


async def embedded(runs: int, say: Say) -> list[Measure]:
    """Submits in the process that serves the directory itself, against bare syncs of the same disk."""
    values = []
    for _ in announced("embedded submits", runs, say):
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            measured = await loaded(str(Path(folder) / "data"), "beside_the_disk", 2_000)
        values.append(_beside_the_disk(measured))
    return [at_least("one-by-one durable submits, in one process, to bare appends with fdatasync", values, 0.6)]


async def throughput(runs: int, say: Say) -> list[Measure]:
    """A long queue drained by one worker process, and producer and worker at once."""
    drained: list[float] = []
    whole: list[float] = []
    with echo_server() as echo_address:
        baseline = Baseline(Echo(echo_address).measure)
        for _ in announced("drain and end to end", runs, say):
            await baseline.begin()
            with holdfast_server() as server:
                await loaded(str(server.data), "fill", _DRAIN_JOBS)
                with noop_worker(str(server.data)):
                    drain = (await loaded(str(server.data), "drain", _DRAIN_JOBS))["jobs"]
            with holdfast_server() as server, noop_worker(str(server.data)):
                jobs = (await loaded(str(server.data), "produce", _DRAIN_JOBS))["jobs"]
            limit = (await baseline.end()).rate
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
    # The surviving worker runs all jobs, those of the killed worker again.
    own_s = -(-_CRASH_JOBS // _CRASH_SLOTS)
    for _ in announced("worker killed", runs, say):
        with holdfast_server() as server:
            url = str(server.data)
            with noop_worker(url, _CRASH_SLOTS), noop_worker(url, _CRASH_SLOTS) as victim:
                measured = await loaded(url, "kill_worker", _CRASH_JOBS, victim.pid)
        over.append(measured["seconds"] - own_s)
        lost.append(float(_CRASH_JOBS - measured["done"]))
    return [
        at_most(f"a worker killed while {_CRASH_JOBS} one-second jobs run and wait: jobs lost", lost, 0, ""),
        at_most("the same: seconds beyond the work's own length", over, 2, "s"),
    ]


async def starts(runs: int, say: Say) -> list[Measure]:
    """Time of `import holdfast` and of `holdfast --help`."""
    importing: list[float] = []
    helping: list[float] = []
    for _ in announced("starts", runs, say):
        bare = _best([sys.executable, "-c", "pass"])
        importing.append(_best([sys.executable, "-c", "import holdfast"]) / bare)
        helping.append(_best([str(Path(sys.executable).with_name("holdfast")), "--help"]) / bare)
    return [
        at_most("import holdfast, to bare `python -c pass`", importing, 1.7),
        at_most("holdfast --help, to bare `python -c pass`", helping, 25),
    ]


def _best(command: Sequence[str], times: int = 5) -> float:
    """The shortest of some runs: other load of the machine only makes a run longer."""
    seconds = []
    # With this variable, every start would compile all modules.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


async def loaded(url: str, what: str, *numbers: int) -> dict[str, Any]:
    """Returns the figures of a process of `sdk_load`; its folder is on the same disk as the data."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        command = module("holdfast_lab.bench.sdk_load", what, *map(str, numbers))
        return dict(json.loads(await output_of(command, environment={URL_VARIABLE: url}, cwd=folder)))
