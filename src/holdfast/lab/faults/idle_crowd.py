"""Connections that say nothing, held by processes of their own: no one process could hold them all.

`python -m holdfast.lab.faults.idle_crowd HOST PORT COUNT SOURCE` prints one line once it holds them, and lets them go
when its standard input ends.
"""

import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from holdfast.lab.processes import ended

#: Of each process, from an address of its own: there are about 28,000 ports for one.
_EACH = 10_000
_PATIENCE_S = 10.0


@contextmanager
def idle_crowd(host: str, port: int, count: int) -> Iterator[int]:
    """Holds so many connections, as far as the server takes them; gives how many were opened."""
    shares = [min(_EACH, count - start) for start in range(0, count, _EACH)]
    with ExitStack() as stack:
        holders = []
        for index, share in enumerate(shares):
            command = [sys.executable, "-P", "-m", "holdfast.lab.faults.idle_crowd"]
            command += [host, str(port), str(share), f"127.0.0.{index + 2}"]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.enter_context(_released(process))
            holders.append(process)
        yield sum(_opened(process) for process in holders)


@contextmanager
def _released(process: subprocess.Popen[str]) -> Iterator[None]:
    with ended(process):
        yield
        assert process.stdin is not None
        process.stdin.close()


def _opened(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def _hold(host: str, port: int, count: int, source: str) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    held = []
    for _ in range(count):
        try:
            held.append(socket.create_connection((host, port), _PATIENCE_S, (source, 0)))
        except OSError:
            continue
    print(len(held), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _hold(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
