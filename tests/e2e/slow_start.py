"""A topology of which one process takes long to start."""

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path

from tests.e2e.fleet import Program
from tests.e2e.http_requests import ask
from tests.e2e.wait_until import eventually


def process_with(program: Program, *words: bytes) -> int:
    """Returns the child whose command line has these words in this order; 0 while there is none."""
    for pid in program.children():
        with contextlib.suppress(OSError):  # the process has ended since
            if b"\0".join(words) in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    return 0


def listens(port: int) -> bool:
    """Whether a process listens on the port."""
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def stopped(find: Callable[[], int], is_due: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Stops a process as soon as it is there and the condition holds, and continues it after the block."""
    eventually(is_due)
    pid = eventually(find)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def refuses_everything_but_probes(address: str) -> None:
    """Checks that a process answers probes while it waits for others, and refuses the rest as retryable."""
    eventually(lambda: listens(int(address.rpartition(":")[2])), what="a port of HTTP")
    assert ask(address, "/livez").status == HTTPStatus.OK
    ready = ask(address, "/readyz")
    assert (ready.status, ready.json["state"]) == (HTTPStatus.SERVICE_UNAVAILABLE, "starting")
    refused = ask(address, "/api/v1/jobs")
    assert (refused.status, refused.json["reason"]) == (HTTPStatus.SERVICE_UNAVAILABLE, "SERVER_STARTING")
