"""The log lines of refused requests."""

import pytest
from structlog.testing import capture_logs

from holdfast.errors import HoldfastError, NotFoundError, UnimplementedError
from holdfast.server.refusal_log import SOCKET_PEER, log_refusal

MISSING = UnimplementedError("the zookeeper backend has no statistics", reason="CAPABILITY_MISSING")
UNKNOWN = UnimplementedError("there is no method 'Make' here", reason="METHOD_UNKNOWN")
GONE = NotFoundError("no job 'a'", reason="JOB_NOT_FOUND")


@pytest.mark.parametrize(
    ("error", "peer", "level"),
    [
        (GONE, "127.0.0.1:9", "warning"),
        (UNKNOWN, "127.0.0.1:9", "warning"),
        (MISSING, "127.0.0.1:9", "info"),
        (GONE, SOCKET_PEER, "info"),
    ],
)
def test_missing_capability_is_no_warning(error: HoldfastError, peer: str, level: str) -> None:
    """Each refusal is logged once, at info for a missing capability or over the socket, else at warning."""
    with capture_logs() as lines:
        log_refusal(error, "Stats", peer)
    assert [(line["log_level"], line["event"], line["reason"]) for line in lines] == [(level, "refused", error.reason)]
