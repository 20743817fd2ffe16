"""The limit of file descriptors of a server."""

import subprocess
import sys

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
