"""The gRPC connections of one server: a limit for all of them, and a lower one for those without an admitted call.

gRPC accepts connections in its own threads and does not expose them. It enforces `connections_max` itself; a scan of
the process's descriptors enforces the lower limit. Invariants: after a scan, at most `strangers_max` connections have
never made a call that the guard admitted; the oldest of them are shut down first. A descriptor is shut down only
through a duplicate that was verified to be the same socket, because gRPC may close it at any moment, and the system may
reuse its number. A scan needs a free descriptor; without one it changes nothing and is repeated.
"""

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from typing import NamedTuple

from holdfast import limits
from holdfast.journal.descriptors import is_no_descriptor
from holdfast.observe.logs import get_logger
from holdfast.server.auth.permissions import Caller, CallerSession, Ended, Guard, Right, Scope
from holdfast.server.descriptors import CALLS_SHARE, connections_allowed

_LOOK_S = 0.5
#: Every this many ticks, all connections are scanned even if the estimate finds few strangers.
_LOOKS_SURE = 20
#: Descriptors to scan before other tasks may run.
_STEP = 128
#: At most one of this many connections is a stranger.
_STRANGERS_SHARE = 4


class _Descriptor(NamedTuple):
    """A descriptor as it was first seen; `peer` is empty if it is not a connection of this server."""

    inode: int
    peer: str
    look: int


class ConnectionTable:
    """The connections of one server. `start` once it listens, then `stop`."""

    def __init__(self, connections_max: int = limits.GRPC_CONNECTIONS_MAX) -> None:
        #: The limit that gRPC itself enforces.
        self.connections_max = connections_allowed(connections_max, CALLS_SHARE)
        self.strangers_max = max(1, min(limits.GRPC_STRANGERS_MAX, self.connections_max // _STRANGERS_SHARE))
        #: Peers, in gRPC's notation, that made an admitted call.
        self._admitted: set[str] = set()
        self._known: dict[int, _Descriptor] = {}
        self._looks = self._ticks = 0
        #: The descriptors at the last scan that are not connections of this server, such as those of the wire.
        self._others = 0
        #: The number of connections that were shut down.
        self.ended = 0
        self._port = 0
        #: The error of the last scan, so that it is logged once; empty if the scan succeeded.
        self._problem = ""
        self._watching: asyncio.Task[None] | None = None

    def admit(self, peer: str) -> None:
        """Records that a call of this peer was admitted, so that its connection is kept."""
        self._admitted.add(peer)

    @property
    def peers(self) -> set[str]:
        """The peers of all connections that the last scan found."""
        return {one.peer for one in self._known.values() if one.peer}

    def watch(self, port: int) -> None:
        """Sets the port whose connections `look` scans."""
        self._port = port

    def start(self, port: int) -> None:
        """Starts scanning the connections to this port periodically."""
        self.watch(port)
        self._watching = asyncio.create_task(self._look_again())

    async def stop(self) -> None:
        """Stops scanning."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                if self._is_due():
                    await self.look()
            except Exception as error:  # noqa: BLE001 - the task would end for good, and with it the limit
                self._note(error)
            else:
                self._problem = ""

    def _note(self, error: Exception) -> None:
        """Logs the error of a scan, unless the previous scan failed with the same one."""
        problem = repr(error)
        is_new, self._problem = problem != self._problem, problem
        if not is_new:
            return
        if isinstance(error, OSError):
            get_logger().warning(
                "connections_not_counted",
                message=f"the connections could not be counted, and are counted again in {_LOOK_S:g} s: {error}",
            )
        else:
            get_logger().error("bug", message="the connections could not be counted", exc_info=error)

    def _is_due(self) -> bool:
        """Whether there may be too many strangers; an estimate, because descriptors were closed since the last scan."""
        self._ticks += 1
        count = len(_descriptors())
        has_many = count > self.strangers_max
        is_sure = self._ticks % _LOOKS_SURE == 0
        unknown = count - self._others - len(self._admitted)
        return unknown > self.strangers_max or (is_sure and (has_many or bool(self._admitted)))

    async def look(self) -> int:
        """Scans all connections, shuts down strangers above the limit, and returns their number."""
        self._looks += 1
        admitted = frozenset(self._admitted)
        self._known = found = await self._found()
        self._others = sum(not one.peer for one in found.values())
        self._admitted -= admitted.difference(one.peer for one in found.values())
        strangers = [
            (one.look, one.inode, fd) for fd, one in found.items() if one.peer and one.peer not in self._admitted
        ]
        strangers.sort()
        surplus = strangers[: max(0, len(strangers) - self.strangers_max)]
        ended = 0
        for index, (_, inode, fd) in enumerate(surplus):
            if index % _STEP == _STEP - 1:
                await asyncio.sleep(0)
            # The peer may have made its first call meanwhile.
            ended += found[fd].peer not in self._admitted and _is_shut_down(fd, inode)
        self.ended += ended
        if ended:
            get_logger().warning(
                "connections_ended",
                message="too many connections without an authorized call; the oldest were closed",
                ended=ended,
                bound=self.strangers_max,
            )
        return ended

    async def _found(self) -> dict[int, _Descriptor]:
        """Returns all descriptors; those already known keep their data."""
        found: dict[int, _Descriptor] = {}
        for index, fd in enumerate(map(int, _descriptors())):
            if index % _STEP == _STEP - 1:
                await asyncio.sleep(0)
            try:
                found[fd] = self._seen(fd)
            except OSError as error:
                if is_no_descriptor(error):
                    # A connection of this server would pass for one of another port.
                    raise
                # It was closed meanwhile.
        return found

    def _seen(self, fd: int) -> _Descriptor:
        status = os.fstat(fd)
        known = self._known.get(fd)
        if known is not None and known.inode == status.st_ino:
            return known
        peer = self._peer_of(fd) if stat.S_ISSOCK(status.st_mode) else ""
        return _Descriptor(status.st_ino, peer, self._looks)

    def _peer_of(self, fd: int) -> str:
        """Returns the peer of a connection to this server, in gRPC's notation; empty for any other socket."""
        with _duplicate(fd) as duplicate, contextlib.suppress(OSError):
            if duplicate.family not in {socket.AF_INET, socket.AF_INET6} or duplicate.getsockname()[1] != self._port:
                return ""
            return grpc_peer(*duplicate.getpeername()[:2])
        return ""


class RecordingGuard:
    """A guard that records the peers of admitted calls in the connection table."""

    def __init__(self, guard: Guard, connections: ConnectionTable) -> None:
        self._guard = guard
        self._connections = connections
        self.recognise = guard.recognise

    def charge(self, caller: Caller | None, token: str, peer: str, scope: Scope) -> None:
        """Delegates to the guard, and records the peer."""
        self._guard.charge(caller, token, peer, scope)
        self._connections.admit(peer)

    def admit(self, token: str, peer: str, scope: Scope) -> Caller:
        """Delegates to the guard, and records the peer."""
        caller = self._guard.admit(token, peer, scope)
        self._connections.admit(peer)
        return caller

    def enter(self, token: str, peer: str, right: Right, ended: Ended) -> CallerSession:
        """Delegates to the guard, and records the peer."""
        session = self._guard.enter(token, peer, right, ended)
        self._connections.admit(peer)
        return session


def _descriptors() -> list[str]:
    """Returns the numbers of all open descriptors of this process."""
    return os.listdir("/dev/fd")  # noqa: PTH208 - ten times as fast as paths, which matters for many


@contextlib.contextmanager
def _duplicate(fd: int) -> Iterator[socket.socket]:
    """Yields a socket with a duplicate of the descriptor; raises OSError if it is no socket any more."""
    number = os.dup(fd)
    try:
        duplicate = socket.socket(fileno=number)
    except OSError:
        os.close(number)
        raise
    with duplicate:
        yield duplicate


def grpc_peer(host: str, port: int) -> str:
    """Formats an address in gRPC's notation."""
    host = host.removeprefix("::ffff:")
    return f"ipv6:%5B{host.replace('%', '%25')}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"


def _is_shut_down(fd: int, inode: int) -> bool:
    """Shuts the descriptor down if it is still that socket, and returns whether it was; gRPC then closes it."""
    with contextlib.suppress(OSError), _duplicate(fd) as duplicate:
        if os.fstat(duplicate.fileno()).st_ino == inode:
            duplicate.shutdown(socket.SHUT_RDWR)
            return True
    return False
