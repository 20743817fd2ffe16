"""What a forked child must let go of.

A child has copies of all descriptors. While it keeps those of a directory's socket or of a worker's connection to its
server, a connection that its parent lost by dying looks alive to the other side, and one to a dead server waits for
nobody. The loops and transports that own them are the parent's, and must not be touched: so the numbers stay, and lead
nowhere.
"""

import contextlib
import os
import socket
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from holdfast.server.unix_socket import SOCKET_NAME

#: The name of an end of a connection, as the operating system gives it.
_Name = object


def let_go_of_sockets() -> None:
    """Every descriptor of this process that belongs to a directory's socket leads nowhere after this."""
    _let_go(_is_of_directory)


def let_go_in_children(addresses: Collection[str]) -> None:
    """Have every forked child of this process let go of its connections to these servers, `host:port` each."""
    peers = frozenset(place for address in addresses for place in _resolved(address) if place)
    os.register_at_fork(after_in_child=lambda: _let_go(lambda end: _place(_peer(end)) in peers))


def _resolved(address: str) -> Iterator[tuple[str, int] | None]:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):  # the worker is told of a host that is not known
        for *_, name in socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM):
            yield _place(name)


def _place(name: _Name) -> tuple[str, int] | None:
    """The host and port of an end; None of a socket that is not of a network.

    gRPC connects with sockets of IPv6 to hosts of IPv4, too.
    """
    if not isinstance(name, tuple):
        return None
    host, port, *_ = name
    return str(host).removeprefix("::ffff:"), int(port)


def _let_go(is_meant: Callable[[socket.socket], bool]) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        for entry in list(Path("/proc/self/fd").iterdir()):
            with contextlib.suppress(OSError):  # the descriptor of the listing itself is gone by now
                if _is_socket(int(entry.name), is_meant):
                    os.dup2(nowhere, int(entry.name), inheritable=False)
    finally:
        os.close(nowhere)


def _is_socket(descriptor: int, is_meant: Callable[[socket.socket], bool]) -> bool:
    """Whether it is a socket, and one of those."""
    try:
        copy = socket.socket(fileno=os.dup(descriptor))
    except OSError:
        return False
    with copy:
        return is_meant(copy)


def _is_of_directory(end: socket.socket) -> bool:
    """Whether one of its ends is a socket of ours; both are named by the process that listens."""
    return end.family == socket.AF_UNIX and (_is_ours(end.getsockname()) or _is_ours(_peer(end)))


def _peer(end: socket.socket) -> _Name:
    try:
        return end.getpeername()
    except OSError:  # it listens, or is connected to nobody
        return ""


def _is_ours(name: _Name) -> bool:
    return isinstance(name, str) and name.endswith(f"/{SOCKET_NAME}")
