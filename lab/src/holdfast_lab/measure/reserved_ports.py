"""Ports that stay reserved while the process that listens on them is replaced.

A port is reserved by a socket that is bound and does not listen. Other programs that search for a free port skip it; a
program that gets its number can still listen on it.
"""

import contextlib
import random
import socket

HOST = "127.0.0.1"
#: Outside the ranges from which outgoing connections and private ensembles take their ports.
_PORTS = range(12_000, 20_000)


class Ports:
    """Consecutive ports; `close` releases them."""

    def __init__(self, count: int) -> None:
        draw = random.SystemRandom()
        while True:
            self._held: list[socket.socket] = []
            self.first = draw.choice(_PORTS)
            with contextlib.suppress(OSError):
                for port in range(self.first, self.first + count):
                    self._hold(port)
                break
            self.close()
        self.addresses = [f"{HOST}:{port}" for port in range(self.first, self.first + count)]

    def _hold(self, port: int) -> None:
        with socket.socket() as probe:  # without SO_REUSEADDR: fails if another program has the port
            probe.bind((HOST, port))
        held = socket.socket()
        self._held.append(held)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((HOST, port))

    def close(self) -> None:
        """Releases the ports."""
        for held in self._held:
            held.close()


def port_of(address: str) -> str:
    """Returns the port of an address."""
    return address.rpartition(":")[2]
