"""The limit of file descriptors of a server."""

import subprocess
import sys

import pytest

from holdfast import limits
from holdfast.server import descriptors

_PROGRAM = """
import resource
from holdfast.server.descriptors import allow_many
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
hard = 4_096 if hard == resource.RLIM_INFINITY else min(hard, 4_096)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard // 2, hard))
allow_many()
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
"""


def test_server_takes_as_many_descriptors_as_it_may() -> None:
    """The server raises its soft limit of file descriptors to the hard limit, so that the journal can open files."""
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True, timeout=60)


@pytest.mark.parametrize("limit", [1_024, 20_000, 65_536])
def test_connections_of_all_ports_together_leave_descriptors(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With as many connections as each port allows, the journal can still open files."""
    monkeypatch.setattr(descriptors, "descriptor_limit", lambda: limit)
    shares = {
        descriptors.WIRE_SHARE: limits.WIRE_CONNECTIONS_MAX,
        descriptors.GRPC_SHARE: limits.GRPC_CONNECTIONS_MAX,
        descriptors.HTTP_SHARE: limits.HTTP_CONNECTIONS_MAX,
    }
    allowed = sum(descriptors.connections_allowed(most, share) for share, most in shares.items())
    assert limit - allowed >= limit // 16
