"""A server with many idle connections: checks whether workers, submits and the journal continue.

    python -m holdfast_lab.faults.idle_connections --connections 25000

The connections are those of the gRPC port, and on another server those of the port of HTTP and the wire. One client
and one worker connect before them. Then jobs are submitted until the journal has closed several files, and run; finally
another worker connects, and more jobs are run.
"""

import threading
from contextlib import ExitStack
from typing import Self

import msgspec

from holdfast import Holdfast
from holdfast.errors import HoldfastError
from holdfast_lab.faults.idle_connection_holders import hold_idle_connections
from holdfast_lab.faults.secured_server import secured_server
from holdfast_lab.measure.command import parser, show
from holdfast_lab.measure.process_tree import descriptors
from holdfast_lab.measure.processes import ServerProcess, noop_worker
from holdfast_lab.measure.tables import columns

PORTS = ("grpc", "wire")
_JOBS = 40
_PAYLOAD = "x" * 200_000
_PATIENCE_S = 60.0
#: A file of the journal is closed after a few of these jobs.
_SEGMENT_BYTES = 1 << 20


class ConnectionFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The server's figures with the idle connections."""

    #: The port with the idle connections.
    port: str
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
    """The most descriptors that the server had, sampled by another thread."""

    def __init__(self, server: ServerProcess) -> None:
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
            self.peak = max(self.peak, descriptors(self._server.pid))


def measure(count: int, port: str) -> ConnectionFigures:
    """Runs all phases on one server, with idle connections to one of `PORTS`."""
    with ExitStack() as stack:
        server = stack.enter_context(secured_server("--segment-bytes", str(_SEGMENT_BYTES)))
        host, _, number = (server.grpc if port == "grpc" else server.http).rpartition(":")
        stack.enter_context(noop_worker(server.url, slots=1))
        app = Holdfast(server.url)
        stack.callback(app.close)
        app.stats()
        before, segments = descriptors(server.pid), _segments(server)
        gauge = stack.enter_context(_Gauge(server))
        opened = stack.enter_context(hold_idle_connections(host, int(number), count))
        submitted, done, workers = _worked(app, server, stack)
        return ConnectionFigures(
            port=port,
            connections=opened,
            descriptors_before=before,
            descriptors_peak=gauge.peak,
            descriptors_after=descriptors(server.pid),
            first_worker_connected=workers > 0,
            new_worker_connected=workers > 1,
            segments_closed=_segments(server) - segments,
            jobs_submitted=submitted,
            jobs_done=done,
            server_alive=descriptors(server.pid) > 0,
        )


def _worked(app: Holdfast, server: ServerProcess, stack: ExitStack) -> tuple[int, int, int]:
    """Returns the jobs submitted, the jobs done, and the workers connected at the end."""
    noop = app.job(name="noop")(_noop)
    submitted = done = workers = 0
    try:
        for is_first in (True, False):
            if not is_first:
                stack.enter_context(noop_worker(server.url, slots=1))
            jobs = []
            for _ in range(_JOBS):
                jobs.append(noop.submit(_PAYLOAD))
                submitted += 1
            for job in jobs:
                job.result(timeout_s=_PATIENCE_S)
                done += 1
            workers = app.stats().workers
    except (HoldfastError, ValueError, OSError) as error:
        print(f"the server did not continue: {error}")
    return submitted, done, workers


def _noop(argument: str) -> None:
    """Runs in the workers."""


def _segments(server: ServerProcess) -> int:
    return len(list(server.data.rglob("*.seg")))


def main() -> None:
    """Measures once for each port and prints the figures."""
    options = parser(__doc__)
    options.add_argument("--connections", type=int, default=25_000)
    given = options.parse_args()
    figures = [measure(given.connections, port) for port in PORTS]
    names = [field.name for field in msgspec.structs.fields(ConnectionFigures)][1:]
    rows = [(name.replace("_", " "), *(getattr(one, name) for one in figures)) for name in names]
    show(figures, columns(("idle connections to the port of", *PORTS), rows), as_json=given.json)


if __name__ == "__main__":
    main()
