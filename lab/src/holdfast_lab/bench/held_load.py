"""Clients that stay connected until their standard input ends, in a process of their own.

- `python -m holdfast_lab.bench.held_load submit CLIENTS JOBS` connects that many clients and prints a line; after a
  line of input it submits the jobs from all of them at once, and prints the number of jobs when all are accepted.
- `… hold CLIENTS` opens that many connections of the wire and prints their number.
- `… fill JOBS` submits the jobs in batches from one client, and prints their number.
"""

import os
import resource
import sys
import threading
from collections.abc import Callable

from holdfast import Holdfast
from holdfast.client.blocking_transport import BlockingTransport
from holdfast.client.endpoints import TcpEndpoint
from holdfast_lab.measure.processes import URL_VARIABLE

_ARGUMENT = "x" * 80
#: Jobs of one call.
_TOGETHER = 500


def submit(clients: int, jobs: int) -> int:
    """Submits the jobs, an equal share from each client, and returns their number."""
    apps = [Holdfast(os.environ[URL_VARIABLE]) for _ in range(clients)]
    for app in apps:
        app.stats()  # connects
    print("connected", flush=True)
    sys.stdin.readline()
    threads = [threading.Thread(target=_submit_share, args=(app, jobs // clients)) for app in apps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return jobs // clients * clients


def _submit_share(app: Holdfast, jobs: int) -> None:
    noop = app.job(name="noop")(_noop)
    for start in range(0, jobs, _TOGETHER):
        noop.submit_many([(_ARGUMENT,)] * min(_TOGETHER, jobs - start))


def _noop(argument: str) -> None:
    """Runs in the workers."""


def hold(clients: int) -> int:
    """Opens idle connections and returns their number."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    endpoint = TcpEndpoint(os.environ[URL_VARIABLE])
    _held.extend(BlockingTransport.connect(endpoint) for _ in range(clients))
    return len(_held)


def fill(jobs: int) -> int:
    """Submits the jobs and returns their number; the client of a directory stays its server."""
    app = Holdfast(os.environ[URL_VARIABLE])
    _kept.append(app)
    _submit_share(app, jobs)
    return jobs


_held: list[BlockingTransport] = []
_kept: list[Holdfast] = []

if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[2:]]
    commands: dict[str, Callable[..., int]] = {"submit": submit, "hold": hold, "fill": fill}
    print(commands[sys.argv[1]](*numbers), flush=True)
    sys.stdin.read()
