"""What a worker is called unless somebody names it."""

import os
import re
import secrets
import socket

from holdfast import limits


def host_name() -> str:
    """The host's name alone: for one worker on it, which comes back under the same name."""
    return _cut(_host())


def process_name() -> str:
    """The host's name and this process: stable while it lives, its own among many on one host."""
    return _cut(f"{_host()}-{os.getpid()}")


def fresh_name() -> str:
    """Host, process and a random part: unique for each worker of a process."""
    return _cut(f"{_host()}-{os.getpid()}-{secrets.token_hex(6)}")


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()) or "worker"


def _cut(name: str) -> str:
    """The end is what tells workers apart."""
    return name[-limits.NAME_CHARS_MAX :]
