"""Default names of workers."""

import os
import re
import secrets
import socket

from holdfast import limits


def host_name() -> str:
    """The host's name: for a single worker on a host, which keeps its name over restarts."""
    return _cut(_host())


def process_name() -> str:
    """host-pid: unique on one host, and stable while the process lives."""
    return _cut(f"{_host()}-{os.getpid()}")


def fresh_name() -> str:
    """host-pid-random: unique per worker."""
    return _cut(f"{_host()}-{os.getpid()}-{secrets.token_hex(6)}")


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()) or "worker"


def _cut(name: str) -> str:
    """Keeps the end of a long name, which distinguishes workers."""
    return name[-limits.NAME_CHARS_MAX :]
