"""The measures of speed, each over one system on a fresh store."""

import time
from collections.abc import Callable
from typing import Any

from holdfast.errors import DeadlineExceededError
from holdfast_lab.measure.numbers import percentile
from holdfast_lab.peers.system import CALLERS, ConcurrentSystem, System
from holdfast_lab.peers.workers import running_workers

_SINGLES = 100
_CALIBRATION_S = 1.0
_PATIENCE_S = 120.0
#: Interval of counting ends; a count costs a database something.
_POLL_S = 0.05
_LATENCY_CALLS_MIN = 30
_LATENCY_CALLS_MAX = 1_000

Values = dict[str, float]


def bulk_enqueue(system: System, seconds: float) -> Values:
    """Jobs accepted per second from the system's call for many, without a worker."""
    return _accepted(system.enqueue_many, system.about.chunk, seconds)


def submit_one_by_one(system: System, seconds: float) -> Values:
    """Jobs accepted per second from a lone caller that waits for each, without a worker."""
    return _accepted(system.submit_each, _SINGLES, seconds)


def submit_together(system: ConcurrentSystem, seconds: float) -> Values:
    """Jobs accepted per second from concurrent callers that each wait for theirs, without a worker."""
    return _accepted(system.submit_together, 10 * CALLERS, seconds)


def end_to_end(system: System, seconds: float) -> Values:
    """Jobs per second from the first submit until the last result is stored."""
    with running_workers(system):
        rate = _calibrate(system, min(seconds, _CALIBRATION_S))
        chunk = system.about.chunk
        count = max(chunk, round(rate * seconds / chunk) * chunk)
        elapsed = _run(system, count)
    return {"rate": count / elapsed, "jobs": count}


def idle_latency(system: System, seconds: float) -> Values:
    """Latency of one job at a time in an idle system, from submit to result."""
    with running_workers(system):
        times = sorted(_times(system.submit_and_wait, seconds))
    return {"p50_ms": percentile(times, 0.5) * 1_000, "p99_ms": percentile(times, 0.99) * 1_000, "jobs": len(times)}


def _accepted(submit: Callable[[int], None], chunk: int, seconds: float) -> Values:
    submit(chunk)
    count, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        submit(chunk)
        count += chunk
    return {"rate": count / elapsed, "jobs": count}


def _calibrate(system: System, seconds: float) -> float:
    """A first guess of the rate: the number of jobs doubles until they take long enough. Also a warm-up."""
    count = 50
    while (elapsed := _run(system, count)) < seconds:
        count *= 2
    return count / elapsed


def _run(system: System, count: int) -> float:
    before = system.count_done()
    start = time.perf_counter()
    for first in range(0, count, system.about.chunk):
        system.enqueue_many(min(system.about.chunk, count - first))
    while (done := system.count_done() - before) < count:
        if time.perf_counter() - start > _PATIENCE_S:
            raise DeadlineExceededError(f"{done} of {count} jobs were done after {_PATIENCE_S:g} s")
        time.sleep(_POLL_S)
    return time.perf_counter() - start


def _times(call: Callable[[], None], seconds: float) -> list[float]:
    """Seconds of each call; as many calls as fit, within bounds."""
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < _LATENCY_CALLS_MAX:
        before = time.perf_counter()
        if before - start > seconds and len(times) >= _LATENCY_CALLS_MIN:
            break
        call()
        times.append(time.perf_counter() - before)
    return times


MEASURES: dict[str, Callable[[Any, float], Values]] = {
    "bulk_enqueue": bulk_enqueue,
    "submit_one_by_one": submit_one_by_one,
    "submit_together": submit_together,
    "end_to_end": end_to_end,
    "idle_latency": idle_latency,
}
