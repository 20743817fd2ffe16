"""Load from the SDK, in a process of its own: prints what it measured as one line of JSON.

Run as `python -m holdfast.lab.sdk_load WHAT COUNT` with the app's url in the environment.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.lab.noop_app import app, noop

ARGUMENT = "x" * 80
_BLOCKS = 5
_LOOK_S = 0.02
#: A producer hands over what it has got together; workers begin with the first of it.
_TOGETHER = 10_000


def one_by_one(count: int) -> dict[str, object]:
    """Each submit waits for the one before it to be durable."""
    for _ in range(count // 10):
        noop.submit(ARGUMENT)
    return {"rate": _rate(lambda: noop.submit(ARGUMENT), count)}


def beside_the_disk(count: int) -> dict[str, object]:
    """Blocks of submits in turn with blocks of bare syncs of as many bytes, as rates."""
    ours, bare = [], []
    for _ in range(count // 10):
        noop.submit(ARGUMENT)
    for _ in range(_BLOCKS):
        bare.append(_bare_syncs(count // _BLOCKS))
        ours.append(_rate(lambda: noop.submit(ARGUMENT), count // _BLOCKS))
    return {"ours": ours, "bare": bare}


def round_trips(count: int) -> dict[str, object]:
    """Submits one, waits for its result, in seconds each."""
    for _ in range(count // 10):
        noop.submit(ARGUMENT).result(timeout_s=30)
    return {"seconds": list(_timed(lambda: noop.submit(ARGUMENT).result(timeout_s=30), count))}


def produce(count: int) -> dict[str, object]:
    """Submits all, in batches, then waits until all have ended; the rate of whole jobs."""
    start = time.perf_counter()
    for _ in range(0, count, _TOGETHER):
        noop.submit_many([(ARGUMENT,)] * _TOGETHER)
    submitted = time.perf_counter()
    wait_until_done(count)
    return {"submits": count / (submitted - start), "jobs": count / (time.perf_counter() - start)}


def fill(count: int) -> dict[str, object]:
    """Submits all and returns."""
    noop.submit_many([(ARGUMENT,)] * count)
    return {}


def drain(count: int) -> dict[str, object]:
    """Waits until all have ended, from the moment on at which the first has."""
    wait_until_done(1)
    before, start = _done(), time.perf_counter()
    wait_until_done(count)
    return {"jobs": (count - before) / (time.perf_counter() - start)}


def wait_until_done(count: int) -> None:
    """Until so many jobs are DONE."""
    while _done() < count:
        time.sleep(_LOOK_S)


def _done() -> int:
    return app.stats().states.get("DONE", 0)


def _rate(call: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return count / (time.perf_counter() - start)


def _timed(call: Callable[[], object], count: int) -> Iterator[float]:
    for _ in range(count):
        start = time.perf_counter()
        call()
        yield time.perf_counter() - start


def _bare_syncs(count: int) -> float:
    """The plainest log there is: small records appended to a file, each synced, a second."""
    with tempfile.NamedTemporaryFile(dir=Path.cwd()) as file:
        number, record = file.fileno(), b"x" * 256
        start = time.perf_counter()
        for _ in range(count):
            os.write(number, record)
            os.fdatasync(number)
        return count / (time.perf_counter() - start)


WHAT: dict[str, Callable[[int], dict[str, object]]] = {
    call.__name__: call for call in (one_by_one, beside_the_disk, round_trips, produce, fill, drain)
}

if __name__ == "__main__":
    print(json.dumps(WHAT[sys.argv[1]](int(sys.argv[2]))), flush=True)
    app.close()
