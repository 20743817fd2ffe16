"""The weight of a ledger: memory and restart with a long queue, many clients and workers, many idle connections."""

import asyncio
import contextlib
import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from holdfast import Holdfast
from holdfast_lab.measure.measures import Measure, at_least, at_most
from holdfast_lab.measure.process_tree import resident_bytes, shared_bytes, tree
from holdfast_lab.measure.processes import URL_VARIABLE, child, holdfast_server, module, next_line
from holdfast_lab.measure.rounds import Say, announced

_GIB = 1 << 30
_LOOK_S = 0.1
_PRODUCERS = 100
_WORKERS = 50
#: Processes that share the producers, so that their start does not take longer than the measurement.
_PRODUCER_PROCESSES = 4
_CROWD_JOBS = 100_000
_IDLE_CONNECTIONS = 10_000
_FEW_WORKERS = 2


async def long_queue(runs: int, say: Say, jobs: int) -> list[Measure]:
    """A directory with a long queue: the memory of the process that serves it and of its children, and the restart."""
    memory: list[float] = []
    seconds: list[float] = []
    for _ in announced(f"{jobs:,} jobs in a directory, and the restart with them", runs, say):
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            memory.append(await asyncio.to_thread(_filled, Path(folder), jobs))
            start = time.perf_counter()
            with holdfast_server(folder=Path(folder)):
                seconds.append(time.perf_counter() - start)
    return [
        at_most(f"peak memory of everything that serves a directory with {jobs:,} queued jobs", memory, 0.7, "GiB"),
        at_most("restart with them, from the start of the process to the ready line", seconds, 3, "s"),
    ]


def _filled(folder: Path, jobs: int) -> float:
    """Fills the directory from the process that serves it; returns the peak memory of the process and its children."""
    with _load(str(folder / "data"), "fill", str(jobs)) as process, _peak(process.pid) as peak:
        next_line(process)
        while len(tree(process.pid)) > 1:  # a snapshot is being written
            time.sleep(_LOOK_S)
    return max(peak) / _GIB


@contextmanager
def _peak(pid: int) -> Iterator[list[int]]:
    """Samples the memory of a process tree; shared pages count once."""
    found, is_over = [0], threading.Event()

    def look() -> None:
        while not is_over.wait(_LOOK_S):
            found[0] = max(found[0], sum(shared_bytes(one) for one in tree(pid)))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join()


async def crowd(runs: int, say: Say) -> list[Measure]:
    """Throughput with many producers and workers, to that with one producer and two workers."""
    ratios: list[float] = []
    for _ in announced(f"{_PRODUCERS} producers and {_WORKERS} workers", runs, say):
        few = await asyncio.to_thread(_throughput, 1, _FEW_WORKERS)
        many = await asyncio.to_thread(_throughput, _PRODUCERS, _WORKERS)
        ratios.append(many / few)
    what = f"end to end with {_PRODUCERS} producers and {_WORKERS} workers, to one producer and {_FEW_WORKERS} workers"
    return [at_least(what, ratios, 0.8)]


async def idle_connections(runs: int, say: Say) -> list[Measure]:
    """Memory of many idle connections, and throughput beside them."""
    memory: list[float] = []
    ratios: list[float] = []
    for _ in announced(f"{_IDLE_CONNECTIONS:,} idle connections", runs, say):
        without = await asyncio.to_thread(_throughput, 1, _FEW_WORKERS)
        ratios.append(await asyncio.to_thread(_throughput, 1, _FEW_WORKERS, idle=memory) / without)
    return [
        at_most(f"memory of the server for {_IDLE_CONNECTIONS:,} idle connections", memory, 200, "MB"),
        at_least("end to end beside them, to the same without", ratios, 0.95),
    ]


def _throughput(producers: int, workers: int, *, idle: list[float] | None = None) -> float:
    """Jobs per second from the first submit until the last job has ended; with `idle`, beside idle connections."""
    with ExitStack() as stack:
        server = stack.enter_context(holdfast_server())
        if idle is not None:
            idle.append(_hold_idle_connections(stack, server.http, server.pid))
        for started in [stack.enter_context(_worker(server.url)) for _ in range(workers)]:
            next_line(started)
        app = Holdfast(server.url)
        stack.callback(app.close)
        processes = min(producers, _PRODUCER_PROCESSES)
        share = (str(producers // processes), str(_CROWD_JOBS // processes))
        loads = [stack.enter_context(_load(server.url, "crowd", *share)) for _ in range(processes)]
        for load in loads:
            next_line(load)
        start = time.perf_counter()
        for load in loads:
            assert load.stdin is not None
            load.stdin.write("\n")
        jobs = sum(json.loads(next_line(load))["jobs"] for load in loads)
        while app.stats().states.get("DONE", 0) < jobs:
            time.sleep(_LOOK_S / 5)
        return float(jobs / (time.perf_counter() - start))


def _hold_idle_connections(stack: ExitStack, address: str, pid: int) -> float:
    """Opens the connections until the stack ends; returns the memory that they cost the server, in MB."""
    before = resident_bytes(pid)
    load = stack.enter_context(_load(f"holdfast://{address}", "hold", str(_IDLE_CONNECTIONS)))
    assert json.loads(next_line(load)) == {"connections": _IDLE_CONNECTIONS}
    return (resident_bytes(pid) - before) / 1e6


def _worker(url: str) -> contextlib.AbstractContextManager["subprocess.Popen[str]"]:
    """A worker process; it prints its ready line when it is connected, so that many can be started at once."""
    command = module("holdfast", "worker", "-A", "holdfast_lab.bench.noop_app:app", "--log-level", "warning")
    return child(command, environment={URL_VARIABLE: url}, errors=subprocess.DEVNULL)


def _load(url: str, *words: str) -> contextlib.AbstractContextManager["subprocess.Popen[str]"]:
    command = module("holdfast_lab.bench.sdk_load", *words)
    return child(command, environment={URL_VARIABLE: url}, stdin=subprocess.PIPE)
