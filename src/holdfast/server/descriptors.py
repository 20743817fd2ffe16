"""The limit on open files and connections of this process."""

import contextlib
import resource
import sys

#: More than all limits on connections together, but few enough that a loop over all descriptors is fast.
_WANTED = 65_536
#: The largest part of all descriptors that connections of each kind may use. Together they leave some for the journal.
WIRE_SHARE, GRPC_SHARE, HTTP_SHARE = 9 / 16, 1 / 4, 1 / 8


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
