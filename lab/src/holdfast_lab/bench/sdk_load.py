"""Load from the SDK, in a process of its own: prints what it measured as one line of JSON.

Run as `python -m holdfast_lab.bench.sdk_load WHAT NUMBER…` with the app's URL in the environment. It keeps its
connections, and a client that serves a directory keeps serving it, until the standard input ends.
"""

import json
import os
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from holdfast import Holdfast
from holdfast.client.blocking_transport import BlockingTransport
from holdfast.client.endpoints import TcpEndpoint
from holdfast.sdk.function import JobFunction
from holdfast_lab.bench.noop_app import app, noop, one_second
from holdfast_lab.measure.processes import URL_VARIABLE

#: Makes a payload of exactly 100 bytes: `{"argument":"x…"}`.
ARGUMENT = "x" * 85
_BLOCKS = 5
_LOOK_S = 0.02
_PATIENCE_S = 60
#: Jobs of one call; workers begin with the first batch while the producer submits the next.
_TOGETHER = 10_000
#: Jobs of one call where the memory of the producer should stay small.
_FEW_TOGETHER = 500
_WORKERS = 2


def one_by_one(count: int) -> dict[str, object]:
    """Rate of submits, each of which waits until the one before it is durable."""
    for _ in range(count // 10):
        noop.submit(ARGUMENT)
    return {"rate": _rate(lambda: noop.submit(ARGUMENT), count)}


def beside_the_disk(count: int) -> dict[str, object]:
    """Rates of blocks of submits, in turns with blocks of bare syncs of as many bytes."""
    ours, bare = [], []
    for _ in range(count // 10):
        noop.submit(ARGUMENT)
    for _ in range(_BLOCKS):
        bare.append(_bare_syncs(count // _BLOCKS))
        ours.append(_rate(lambda: noop.submit(ARGUMENT), count // _BLOCKS))
    return {"ours": ours, "bare": bare}


def round_trips(count: int) -> dict[str, object]:
    """Seconds from the submit of one job to its result, job by job."""
    for _ in range(count // 10):
        noop.submit(ARGUMENT).result(timeout_s=30)
    return {"seconds": list(_timed(lambda: noop.submit(ARGUMENT).result(timeout_s=30), count))}


def produce(count: int) -> dict[str, object]:
    """Submit all jobs in batches and wait until all have ended; the rate of whole jobs."""
    start = time.perf_counter()
    for _ in range(0, count, _TOGETHER):
        noop.submit_many([(ARGUMENT,)] * _TOGETHER)
    wait_until_done(count)
    return {"jobs": count / (time.perf_counter() - start)}


def fill(count: int) -> dict[str, object]:
    """Submit all jobs and return."""
    return {"jobs": _submit(noop, count)}


def crowd(clients: int, count: int) -> dict[str, object]:
    """Connect many clients, print a line and read one, then submit an equal share of the jobs from each at once."""
    apps = [Holdfast(os.environ[URL_VARIABLE]) for _ in range(clients)]
    for one in apps:
        one.stats()  # connects
    print("connected", flush=True)
    sys.stdin.readline()
    jobs = [one.job(name="noop")(_noop) for one in apps]
    threads = [threading.Thread(target=_submit, args=(job, count // clients)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"jobs": count // clients * clients}


def _noop(argument: str) -> None:
    """Runs in the workers."""


def _submit(job: JobFunction[..., Any, Any], count: int) -> int:
    for start in range(0, count, _FEW_TOGETHER):
        job.submit_many([(ARGUMENT,)] * min(_FEW_TOGETHER, count - start))
    return count


def hold(count: int) -> dict[str, object]:
    """Open idle connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    endpoint = TcpEndpoint(os.environ[URL_VARIABLE].removeprefix("holdfast://"))
    _held.extend(BlockingTransport.connect(endpoint) for _ in range(count))
    return {"connections": len(_held)}


_held: list[BlockingTransport] = []


def drain(count: int) -> dict[str, object]:
    """Wait until all jobs have ended; the rate from the end of the first one on."""
    wait_until_done(1)
    before, start = _done(), time.perf_counter()
    wait_until_done(count)
    return {"jobs": (count - before) / (time.perf_counter() - start)}


def kill_worker(count: int, victim: int) -> dict[str, object]:
    """Submit one-second jobs, kill a worker while they run, and wait for all; the seconds count from the kill."""
    jobs = one_second.submit_many([(number,) for number in range(count)])
    while app.stats().leases < _WORKERS:  # until both workers run jobs
        time.sleep(_LOOK_S)
    start = time.perf_counter()
    os.kill(victim, signal.SIGKILL)
    done = sum(job.result(timeout_s=_PATIENCE_S) == number for number, job in enumerate(jobs))
    return {"seconds": time.perf_counter() - start, "done": done}


def wait_until_done(count: int) -> None:
    """Wait until this many jobs are DONE."""
    while _done() < count:
        time.sleep(_LOOK_S)


def _done() -> int:
    return app.stats().states.get("DONE", 0)


def _rate(call: Callable[[], object], count: int) -> float:
    return count / sum(_timed(call, count))


def _timed(call: Callable[[], object], count: int) -> Iterator[float]:
    for _ in range(count):
        start = time.perf_counter()
        call()
        yield time.perf_counter() - start


def _bare_syncs(count: int) -> float:
    """The rate of the plainest log: small records appended to a file, each of them synced."""
    with tempfile.NamedTemporaryFile(dir=Path.cwd()) as file:
        number, record = file.fileno(), b"x" * 256

        def append() -> None:
            os.write(number, record)
            os.fdatasync(number)

        return _rate(append, count)


WHAT: dict[str, Callable[..., dict[str, object]]] = {
    call.__name__: call
    for call in (one_by_one, beside_the_disk, round_trips, produce, fill, crowd, hold, drain, kill_worker)
}

if __name__ == "__main__":
    print(json.dumps(WHAT[sys.argv[1]](*map(int, sys.argv[2:]))), flush=True)
    sys.stdin.read()
    app.close()
