"""Drops inherited connections in a forked child.

A child has copies of all descriptors. While it keeps those of a directory's socket or of a worker's connection to its
server, the other side does not notice the death of the parent, and a connection to a dead server stays open. The loops
and transports that own the descriptors belong to the parent and must not be touched: so the descriptors are not closed,
but redirected to /dev/null.
"""

import contextlib
import os
import socket
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from holdfast.server.unix_socket import SOCKET_NAME
from holdfast.wire.keepalive import USER_TIMEOUT_MS

#: The address of one end of a connection, as the operating system gives it.
_Name = object


def let_go_of_sockets() -> None:
    """Redirects every descriptor of a directory's socket to /dev/null."""
    _let_go(_is_of_directory)


def let_go_in_children(addresses: Collection[str]) -> None:
    """Makes every forked child of this process drop its connections to these servers, `host:port` each."""
    peers = frozenset(place for address in addresses for place in _resolved(address) if place)
    os.register_at_fork(after_in_child=lambda: _let_go(lambda end: _is_of_wire(end) or _place(_peer(end)) in peers))


def _is_of_wire(end: socket.socket) -> bool:
    """Returns whether the socket is a client's end of the wire, which may lead to another port than the given one."""
    if end.family not in {socket.AF_INET, socket.AF_INET6}:
        return _is_of_directory(end)
    return end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == USER_TIMEOUT_MS


def _resolved(address: str) -> Iterator[tuple[str, int] | None]:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):  # the worker reports an unknown host itself
        for *_, name in socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM):
            yield _place(name)


def _place(name: _Name) -> tuple[str, int] | None:
    """Returns the host and port of an address; None if it is not a network address.

    gRPC also connects to IPv4 hosts with IPv6 sockets.
    """
    if not isinstance(name, tuple):
        return None
    host, port, *_ = name
    return str(host).removeprefix("::ffff:"), int(port)


def _let_go(is_meant: Callable[[socket.socket], bool]) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        for entry in list(Path("/proc/self/fd").iterdir()):
            with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed by now
                if _is_socket(int(entry.name), is_meant):
                    os.dup2(nowhere, int(entry.name), inheritable=False)
    finally:
        os.close(nowhere)


def _is_socket(descriptor: int, is_meant: Callable[[socket.socket], bool]) -> bool:
    """Returns whether the descriptor is a socket, and `is_meant` accepts it."""
    try:
        copy = socket.socket(fileno=os.dup(descriptor))
    except OSError:
        return False
    with copy:
        return is_meant(copy)


def _is_of_directory(end: socket.socket) -> bool:
    """Returns whether one of its ends has the path of a directory's socket."""
    return end.family == socket.AF_UNIX and (_is_ours(end.getsockname()) or _is_ours(_peer(end)))


def _peer(end: socket.socket) -> _Name:
    try:
        return end.getpeername()
    except OSError:  # it listens, or is not connected
        return ""


def _is_ours(name: _Name) -> bool:
    return isinstance(name, str) and name.endswith(f"/{SOCKET_NAME}")
