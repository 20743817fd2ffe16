"""A server under a crowd of idle connections: whether workers, submits and the journal go on.

    python -m holdfast.lab.faults.idle_connections --connections 25000

One client and one worker are connected before the crowd comes. Then jobs are submitted until the journal has closed
several files, and run; at last another worker connects, and more jobs are run.
"""

import argparse
import json
import threading
from contextlib import ExitStack
from typing import Self

import msgspec

from holdfast import Holdfast
from holdfast.errors import HoldfastError
from holdfast.lab.faults.idle_crowd import idle_crowd
from holdfast.lab.faults.secured_server import SecuredServer, secured_server
from holdfast.lab.product import worker_process

_JOBS = 40
_PAYLOAD = "x" * 200_000
_PATIENCE_S = 60.0
#: A file of the journal is closed after a few of these jobs.
_SEGMENT_BYTES = 1 << 20


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What the server did under the crowd."""

    connections: int
    descriptors_before: int
    descriptors_peak: int
    descriptors_after: int
    first_worker_connected: bool
    new_worker_connected: bool
    segments_closed: int
    jobs_submitted: int
    jobs_done: int
    server_alive: bool


class _Gauge:
    """The most descriptors that the server had, looked at all the time from another thread."""

    def __init__(self, server: SecuredServer) -> None:
        self._server = server
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.peak = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._is_over.wait(0.05):
            self.peak = max(self.peak, self._server.descriptors)


def measure(count: int) -> Figures:
    """The whole story on one server."""
    with ExitStack() as stack:
        server = stack.enter_context(secured_server("--no-http", "--segment-bytes", str(_SEGMENT_BYTES)))
        stack.enter_context(worker_process(server.url, slots=1))
        app = Holdfast(server.url)
        stack.callback(app.close)
        app.stats()
        before, segments = server.descriptors, _segments(server)
        gauge = stack.enter_context(_Gauge(server))
        opened = stack.enter_context(idle_crowd(*server.place, count))
        submitted, done, workers = _worked(app, server, stack)
        return Figures(
            connections=opened,
            descriptors_before=before,
            descriptors_peak=gauge.peak,
            descriptors_after=server.descriptors,
            first_worker_connected=workers > 0,
            new_worker_connected=workers > 1,
            segments_closed=_segments(server) - segments,
            jobs_submitted=submitted,
            jobs_done=done,
            server_alive=server.descriptors > 0,
        )


def _worked(app: Holdfast, server: SecuredServer, stack: ExitStack) -> tuple[int, int, int]:
    """Jobs submitted, jobs done, and workers connected at the end."""
    noop = app.job(name="noop")(_noop)
    submitted = done = workers = 0
    try:
        for is_first in (True, False):
            if not is_first:
                stack.enter_context(worker_process(server.url, slots=1))
            jobs = []
            for _ in range(_JOBS):
                jobs.append(noop.submit(_PAYLOAD))
                submitted += 1
            for job in jobs:
                job.result(timeout_s=_PATIENCE_S)
                done += 1
            workers = app.stats().workers
    except (HoldfastError, ValueError, OSError) as error:
        print(f"it did not go on: {error}")
    return submitted, done, workers


def _noop(argument: str) -> None:
    """Is run by the workers."""


def _segments(server: SecuredServer) -> int:
    return len(list(server.data.rglob("*.seg")))


def main() -> None:
    """One server, one crowd."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=25_000)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    figures = msgspec.to_builtins(measure(given.connections))
    if given.json:
        print(json.dumps(figures))
    else:
        print("\n".join(f"{name.replace('_', ' '):<26}{value!s:>10}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
