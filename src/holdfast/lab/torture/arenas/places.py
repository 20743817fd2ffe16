"""Ports that are kept while whoever has them is replaced.

A port is held by a socket that is bound and does not listen: whoever looks for a free one passes it by, and whoever it
is meant for can have it nevertheless.
"""

import contextlib
import random
import socket

HOST = "127.0.0.1"
#: Outside the ranges from which outgoing connections and private ensembles take their ports.
_PORTS = range(12_000, 20_000)


class Ports:
    """Ports in a row; `close` lets go of them."""

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
        with socket.socket() as probe:  # one that shares with nobody
            probe.bind((HOST, port))
        held = socket.socket()
        self._held.append(held)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((HOST, port))

    def close(self) -> None:
        """Anybody may have them."""
        for held in self._held:
            held.close()


def port_of(address: str) -> str:
    """What stands behind the colon."""
    return address.rpartition(":")[2]
