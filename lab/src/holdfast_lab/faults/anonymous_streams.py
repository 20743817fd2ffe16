"""Memory of a server that requires tokens, while callers without one send it large bodies, over gRPC and the wire.

    python -m holdfast_lab.faults.anonymous_streams --streams 500 --mib 4.9 --connections 1

Every call of gRPC announces a message, sends as much of it as the server's windows allow, and never sends its last
byte. On the wire each of them is a connection with an opening and a body. Memory is the peak of the server's resident
size.
"""

import threading

import msgspec

from holdfast_lab.faults.http2 import Http2Attacker
from holdfast_lab.faults.secured_server import secured_server
from holdfast_lab.faults.wire_openings import OPENINGS, WireAttacker
from holdfast_lab.measure.command import parser, show
from holdfast_lab.measure.process_tree import peak_bytes, resident_bytes
from holdfast_lab.measure.processes import ServerProcess
from holdfast_lab.measure.tables import columns

_MIB = 1 << 20
#: After this time without a byte sent, the server accepts no more.
_QUIET_S = 1.0
PATHS = {
    "submit": "/taskqueue.v1.TaskQueuePublicService/SubmitJob",
    "conversation": "/holdfast.v1.JobService/Converse",
    "health": "/grpc.health.v1.Health/Check",
}


class StreamFigures(msgspec.Struct, frozen=True):
    """The figures of one attack."""

    call: str
    connections: int
    streams: int
    refused: int
    sent_bytes: int
    before_bytes: int
    peak_bytes: int

    @property
    def added_bytes(self) -> int:
        """The most memory that the attack made the server hold."""
        return self.peak_bytes - self.before_bytes

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The bytes sent, the server's memory before, and the most memory added."""
        return self.sent_bytes, self.before_bytes, self.added_bytes


def attack(server: ServerProcess, call: str, *, streams: int, body_bytes: int, connections: int = 1) -> StreamFigures:
    """Opens `streams` calls on each of the connections; returns when the server takes no more."""
    before = resident_bytes(server.pid)
    attackers = [Http2Attacker(*server.place) for _ in range(connections)]
    threads = [threading.Thread(target=_push, args=(one, PATHS[call], streams, body_bytes)) for one in attackers]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return StreamFigures(
            call=call,
            connections=connections,
            streams=sum(one.opened for one in attackers),
            refused=sum(one.refused for one in attackers),
            sent_bytes=sum(one.sent_bytes for one in attackers),
            before_bytes=before,
            peak_bytes=peak_bytes(server.pid),
        )
    finally:
        for one in attackers:
            one.close()


def attack_wire(server: ServerProcess, opening: str, *, connections: int, body_bytes: int) -> StreamFigures:
    """Opens connections of the wire; returns when the server takes no more. The server needs HTTP."""
    before = resident_bytes(server.pid)
    host, _, port = server.http.rpartition(":")
    attacker = WireAttacker(host, int(port), opening, count=connections, body_bytes=body_bytes)
    try:
        attacker.push(_QUIET_S)
        return StreamFigures(
            call=f"wire: {opening}",
            connections=connections,
            streams=connections,
            refused=attacker.refused,
            sent_bytes=attacker.sent_bytes,
            before_bytes=before,
            peak_bytes=peak_bytes(server.pid),
        )
    finally:
        attacker.close()


def _push(attacker: Http2Attacker, path: str, streams: int, body_bytes: int) -> None:
    for _ in range(streams):
        attacker.open(path, body_bytes)
    attacker.push(_QUIET_S)


def main() -> None:
    """Measures each kind of call, and each kind of opening, on a separate server."""
    options = parser(__doc__)
    options.add_argument("--streams", type=int, default=500, help="calls on each connection")
    options.add_argument("--mib", type=float, default=4.9, help="size of each body; the server takes up to 5")
    options.add_argument("--connections", type=int, default=1)
    given = options.parse_args()
    rows, size = [], int(given.mib * _MIB)
    for call in PATHS:
        with secured_server("--no-http") as server:
            rows.append(attack(server, call, streams=given.streams, body_bytes=size, connections=given.connections))
    for opening in OPENINGS:
        with secured_server() as server:
            count = given.streams * given.connections
            rows.append(attack_wire(server, opening, connections=count, body_bytes=size))
    heads = ("call", "connections", "streams", "refused", "sent MiB", "before MiB", "added MiB")
    cells = [
        (row.call, row.connections, row.streams, row.refused, *(size // _MIB for size in row.sizes)) for row in rows
    ]
    show(rows, columns(heads, cells), as_json=given.json)


if __name__ == "__main__":
    main()
