"""The limit on open files of this process, and how its ports share it.

Invariant: the connections of all ports together leave a sixteenth of all descriptors to the journal.

    9/16   admitted connections of the wire, on all ports and on the socket: a `ConnectionBudget` counts them
    4/16   the port for calls: gRPC; without gRPC, connections of that port before they are admitted
    2/16   the port of HTTP, and that of the metrics

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
    """The connections of the wire that this process may have, on all of its ports together."""

    def __init__(self) -> None:
        self.most = connections_allowed(_WANTED, WIRE_SHARE)
        #: The number of connections now.
        self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether no further connection is allowed."""
        return self.count >= self.most
