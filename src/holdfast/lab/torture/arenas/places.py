"""Ports that stay free while whoever has them is replaced."""

import contextlib
import random
import socket
from collections.abc import Collection

HOST = "127.0.0.1"
#: Outside the range from which outgoing connections take their ports.
_PORTS = range(15_000, 30_000)


def row_of_ports(count: int = 1, but: Collection[int] = ()) -> int:
    """The first of so many free ports in a row, none of which is among those that are taken already."""
    draw = random.SystemRandom()
    while True:
        first = draw.choice(_PORTS)
        row = range(first, first + count)
        if not any(port in but for port in row) and all(_is_free(port) for port in row):
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind((HOST, port))
        return True
    return False
