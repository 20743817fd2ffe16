"""Memory of a server that wants tokens, while calls without one send it large bodies.

    python -m holdfast.lab.faults.anonymous_streams --streams 500 --mib 4.9 --connections 1

Every call announces a message, sends what the server's windows take of it and keeps back its last byte. Memory is the
peak that the kernel knows of the server.
"""

import argparse
import json
import threading
from collections.abc import Sequence

import msgspec

from holdfast.lab.faults.http2 import Http2Attacker
from holdfast.lab.faults.secured_server import SecuredServer, secured_server
from holdfast.lab.processes import resident_bytes

_MIB = 1 << 20
#: Nothing has moved for so long: the server takes no more.
_QUIET_S = 1.0
PATHS = {
    "submit": "/taskqueue.v1.TaskQueuePublicService/SubmitJob",
    "conversation": "/holdfast.v1.JobService/Converse",
    "health": "/grpc.health.v1.Health/Check",
}


class Figures(msgspec.Struct, frozen=True):
    """What one attack did."""

    call: str
    connections: int
    streams: int
    refused: int
    sent_bytes: int
    before_bytes: int
    peak_bytes: int

    @property
    def added_bytes(self) -> int:
        """What the attack made the server hold at most."""
        return self.peak_bytes - self.before_bytes

    @property
    def sizes(self) -> tuple[int, int, int]:
        """What was sent, what the server had before, and what it had more at most."""
        return self.sent_bytes, self.before_bytes, self.added_bytes


def attack(server: SecuredServer, call: str, *, streams: int, body_bytes: int, connections: int = 1) -> Figures:
    """So many calls on each of so many connections; returns when the server takes no more."""
    before = resident_bytes(server.pid)
    attackers = [Http2Attacker(*server.place) for _ in range(connections)]
    threads = [threading.Thread(target=_push, args=(one, PATHS[call], streams, body_bytes)) for one in attackers]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return Figures(
            call=call,
            connections=connections,
            streams=sum(one.opened for one in attackers),
            refused=sum(one.refused for one in attackers),
            sent_bytes=sum(one.sent_bytes for one in attackers),
            before_bytes=before,
            peak_bytes=server.peak_bytes,
        )
    finally:
        for one in attackers:
            one.close()


def _push(attacker: Http2Attacker, path: str, streams: int, body_bytes: int) -> None:
    for _ in range(streams):
        attacker.open(path, body_bytes)
    attacker.push(_QUIET_S)


def _shown(rows: Sequence[Figures]) -> str:
    heads = ("call", "connections", "streams", "refused", "sent MiB", "before MiB", "added MiB")
    cells = [
        (row.call, row.connections, row.streams, row.refused, *(size // _MIB for size in row.sizes)) for row in rows
    ]
    return "\n".join("".join(f"{cell:>13}" for cell in line) for line in [heads, *cells])


def main() -> None:
    """Each kind of call on a server of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=500, help="calls on each connection")
    parser.add_argument("--mib", type=float, default=4.9, help="size of each body; the server takes up to 5")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    rows = []
    for call in PATHS:
        with secured_server("--no-http") as server:
            size = int(given.mib * _MIB)
            rows.append(attack(server, call, streams=given.streams, body_bytes=size, connections=given.connections))
    print(json.dumps([msgspec.to_builtins(row) for row in rows]) if given.json else _shown(rows))


if __name__ == "__main__":
    main()
