"""What a forked child must let go of.

A child has copies of all descriptors. While it keeps those of a directory's socket, a connection that its parent lost
by dying looks alive to the other side, and one to a dead server waits for nobody. The loops and transports that own
them are the parent's, and must not be touched: so the numbers stay, and lead nowhere.
"""

import contextlib
import os
import socket
from pathlib import Path

from holdfast.gateway.socket import SOCKET_NAME


def let_go_of_sockets() -> None:
    """Every descriptor of this process that belongs to a directory's socket leads nowhere after this."""
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        for entry in list(Path("/proc/self/fd").iterdir()):
            with contextlib.suppress(OSError):  # the descriptor of the listing itself is gone by now
                if _is_of_directory(int(entry.name)):
                    os.dup2(nowhere, int(entry.name), inheritable=False)
    finally:
        os.close(nowhere)


def _is_of_directory(descriptor: int) -> bool:
    """Whether one of its ends is a socket of ours; both are named by whoever listens."""
    try:
        copy = socket.socket(fileno=os.dup(descriptor))
    except OSError:
        return False
    with copy:
        return copy.family == socket.AF_UNIX and (_is_ours(copy.getsockname()) or _is_ours(_peer(copy)))


def _peer(end: socket.socket) -> object:
    try:
        return end.getpeername()
    except OSError:  # it listens, or is connected to nobody
        return ""


def _is_ours(name: object) -> bool:
    return isinstance(name, str) and name.endswith(f"/{SOCKET_NAME}")
