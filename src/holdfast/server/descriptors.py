"""The limit on open files of this process, and how its ports share it.

Invariant: the connections of all ports together leave a sixteenth of all descriptors to the journal.

    9/16   admitted connections of the wire, on all ports and on the socket: a `ConnectionBudget` counts them
    4/16   the port for calls: gRPC; without gRPC, connections of that port before they are admitted
    2/16   the ports of HTTP, and that of the metrics

A port with TLS divides its part between handshakes in progress and connections.
"""

import contextlib
import resource
import sys

#: More than all limits on connections together, but few enough that a loop over all descriptors is fast.
_WANTED = 65_536
#: The largest part of all descriptors that connections of each kind may use.
WIRE_SHARE, CALLS_SHARE, HTTP_SHARE, METRICS_SHARE = 9 / 16, 1 / 4, 7 / 64, 1 / 64


def allow_many() -> None:
    """Raises the limit as far as allowed, so that connections do not exhaust the descriptors that the journal needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):  # the limit stays as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def descriptor_limit() -> int:
    """Returns the number of descriptors that this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else sys.maxsize


def connections_allowed(wanted: int, share: float) -> int:
    """Returns how many connections of one kind this process may have: as many as wanted, within their share."""
    return max(1, min(wanted, int(descriptor_limit() * share)))


class ConnectionBudget:
    """The connections that all ports of this process share: those of the wire, and those of HTTP.

    It belongs to the process: several servers in one process are given the same budget.
    """

    def __init__(self, http_ports: int = 1) -> None:
        self.most = connections_allowed(_WANTED, WIRE_SHARE)
        #: The part of all descriptors for each port of HTTP.
        self.http_share = HTTP_SHARE / http_ports
        #: The number of connections of the wire now.
        self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether no further connection of the wire is allowed."""
        return self.count >= self.most
