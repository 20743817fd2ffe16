"""The three measures of speed, each over one system on a fresh store."""

import statistics
import time
from collections.abc import Callable

from holdfast.errors import DeadlineExceededError
from holdfast.lab.peers.system import System
from holdfast.lab.peers.worker_process import worker

CHUNK = 500
_CALIBRATION_S = 1.0
_PATIENCE_S = 120.0
_POLL_S = 0.01
_WARM_CALLS = 20
_LATENCY_CALLS_MIN = 30
_LATENCY_CALLS_MAX = 1_000

Values = dict[str, float]


def bulk_enqueue(system: System, seconds: float) -> Values:
    """Jobs accepted a second, with nobody working on them."""
    system.enqueue_many(CHUNK)
    count, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        system.enqueue_many(CHUNK)
        count += CHUNK
    return {"rate": count / elapsed, "jobs": count}


def end_to_end(system: System, seconds: float) -> Values:
    """Jobs a second from the first submit until the last result is stored, one worker working meanwhile."""
    with worker(system.worker_command(), "worker"):
        warm_up(system)
        rate = _calibrate(system, min(seconds, _CALIBRATION_S))
        count = max(CHUNK, round(rate * seconds / CHUNK) * CHUNK)
        elapsed = _run(system, count)
    return {"rate": count / elapsed, "jobs": count}


def idle_latency(system: System, seconds: float) -> Values:
    """One job at a time with nothing else to do, from submit to result."""
    with worker(system.worker_command(), "worker"):
        warm_up(system)
        times = _times(system.submit_and_wait, seconds)
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return {"p50_ms": cuts[49] * 1_000, "p99_ms": cuts[98] * 1_000, "jobs": len(times)}


def warm_up(system: System) -> None:
    """Some jobs one by one. A worker that just starts may fail some: SAQ then sweeps jobs that are new to it."""
    deadline = time.monotonic() + _PATIENCE_S
    done = 0
    while done < _WARM_CALLS:
        try:
            system.submit_and_wait()
            done += 1
        except Exception:  # each system has errors of its own
            if time.monotonic() > deadline:
                raise


def _calibrate(system: System, seconds: float) -> float:
    """A first guess of the rate, from ever more jobs until they take long enough; it warms everything up too."""
    count = 50
    while (elapsed := _run(system, count)) < seconds:
        count *= 2
    return count / elapsed


def _run(system: System, count: int) -> float:
    before = system.count_done()
    start = time.perf_counter()
    for first in range(0, count, CHUNK):
        system.enqueue_many(min(CHUNK, count - first))
    while (done := system.count_done() - before) < count:
        if time.perf_counter() - start > _PATIENCE_S:
            raise DeadlineExceededError(f"{done} of {count} jobs were done after {_PATIENCE_S:g} s")
        time.sleep(_POLL_S)
    return time.perf_counter() - start


def _times(call: Callable[[], None], seconds: float) -> list[float]:
    """How long each call took; as many calls as fit, within bounds."""
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < _LATENCY_CALLS_MAX:
        before = time.perf_counter()
        if before - start > seconds and len(times) >= _LATENCY_CALLS_MIN:
            break
        call()
        times.append(time.perf_counter() - before)
    return times


MEASURES = {"bulk_enqueue": bulk_enqueue, "end_to_end": end_to_end, "idle_latency": idle_latency}
