"""Keep-alive probes of TCP: each end notices after about 30 seconds that the other machine is gone."""

import socket
from asyncio.trsock import TransportSocket

#: How long sent data may stay without an acknowledgement. The odd number also marks connections of the wire: a forked
#: child of a worker recognizes them by it.
USER_TIMEOUT_MS = 30_017
_OPTIONS = (
    (socket.TCP_KEEPIDLE, 15),
    (socket.TCP_KEEPINTVL, 5),
    (socket.TCP_KEEPCNT, 3),
    (socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS),
)


def keep_alive(line: socket.socket | TransportSocket) -> None:
    """Turns the probes on for a TCP connection; raises `OSError` if the connection is gone already."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _OPTIONS:
        line.setsockopt(socket.IPPROTO_TCP, option, value)
