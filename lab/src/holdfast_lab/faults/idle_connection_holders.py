"""Idle connections, held by processes of their own: no single process could hold them all.

`python -m holdfast_lab.faults.idle_connection_holders HOST PORT COUNT SOURCE` prints one line once it holds them, and
closes them
when its standard input ends.
"""

import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from holdfast_lab.measure.processes import child, module, next_line

#: Connections of each process, from an address of its own: one address has about 28,000 ports.
_EACH = 10_000
_PATIENCE_S = 10.0


@contextmanager
def hold_idle_connections(host: str, port: int, count: int) -> Iterator[int]:
    """Holds `count` connections, or as many as the server accepts; yields the number that were opened."""
    shares = [min(_EACH, count - start) for start in range(0, count, _EACH)]
    with ExitStack() as stack:
        holders = []
        for index, share in enumerate(shares):
            words = (host, str(port), str(share), f"127.0.0.{index + 2}")
            command = module("holdfast_lab.faults.idle_connection_holders", *words)
            holders.append(stack.enter_context(child(command, stdin=subprocess.PIPE)))
        yield sum(int(next_line(process)) for process in holders)


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
