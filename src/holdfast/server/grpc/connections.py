"""The gRPC connections of one server: so many in all, and few of them without a call that was let in.

gRPC accepts connections in threads of its own and names none of them. It refuses those beyond `connections_max` by
itself; a look at the descriptors of the process finds the others. Invariants: after a look there are at most
`strangers_max` connections that never made a call which the guard let in; the oldest of them are shut down first. A
descriptor is shut down only through a duplicate that was seen to be the same socket, because gRPC may close it, and the
system may give its number away, at any moment.
"""

import asyncio
import contextlib
import os
import socket
import stat
from typing import NamedTuple

from holdfast import limits
from holdfast.observe.logs import get_logger
from holdfast.server.auth.permissions import Caller, Ended, Guard, Right, Scope, Visit
from holdfast.server.descriptors import descriptor_limit

_LOOK_S = 0.5
#: Looks after which all connections are gone through, although no more than usual seem to be strangers.
_LOOKS_SURE = 20
#: Descriptors that are gone through before others have their turn.
_STEP = 128
#: gRPC may use this part of the descriptors: the journal, HTTP and others need some, too.
_SHARE = 2
#: Of all connections, this part at most are strangers.
_STRANGERS_SHARE = 4


class _Descriptor(NamedTuple):
    """What a descriptor was when it was first seen; `peer` is empty if it is no connection of this server."""

    inode: int
    peer: str
    look: int


class ConnectionTable:
    """Those of one server. `start` once it listens, then `stop`."""

    def __init__(self, connections_max: int = limits.GRPC_CONNECTIONS_MAX) -> None:
        #: For gRPC itself, which counts as well.
        self.connections_max = max(1, min(connections_max, descriptor_limit() // _SHARE))
        self.strangers_max = max(1, min(limits.GRPC_STRANGERS_MAX, self.connections_max // _STRANGERS_SHARE))
        #: Peers, as gRPC writes them, of which a call was let in.
        self._admitted: set[str] = set()
        self._known: dict[int, _Descriptor] = {}
        self._looks = self._ticks = 0
        #: How many connections were shut down.
        self.ended = 0
        self._port = 0
        self._watching: asyncio.Task[None] | None = None

    def admit(self, peer: str) -> None:
        """Remembers that a call of this peer was let in: its connection stays."""
        self._admitted.add(peer)

    @property
    def peers(self) -> set[str]:
        """The other ends of all connections that the last look found."""
        return {one.peer for one in self._known.values() if one.peer}

    def watch(self, port: int) -> None:
        """Names the port whose connections `look` goes through."""
        self._port = port

    def start(self, port: int) -> None:
        """Looks at the connections to this port from now on, again and again."""
        self.watch(port)
        self._watching = asyncio.create_task(self._look_again())

    async def stop(self) -> None:
        """Looks no more."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            if self._is_due():
                await self.look()

    def _is_due(self) -> bool:
        """Whether there may be too many strangers; an estimate, because peers that were let in may have left."""
        self._ticks += 1
        count = len(_descriptors())
        has_many = count > self.strangers_max
        is_sure = self._ticks % _LOOKS_SURE == 0
        return count - len(self._admitted) > self.strangers_max or (is_sure and (has_many or bool(self._admitted)))

    async def look(self) -> int:
        """Goes through all connections and shuts down strangers beyond the bound; returns how many."""
        self._looks += 1
        admitted = frozenset(self._admitted)
        self._known = found = await self._found()
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
            # It may have made its first call by now.
            ended += found[fd].peer not in self._admitted and _is_shut_down(fd, inode)
        self.ended += ended
        if ended:
            get_logger().warning(
                "connections_ended",
                message="too many connections without a call that was let in; the oldest were ended",
                ended=ended,
                bound=self.strangers_max,
            )
        return ended

    async def _found(self) -> dict[int, _Descriptor]:
        """All descriptors, each with what is known of it."""
        found: dict[int, _Descriptor] = {}
        for index, fd in enumerate(map(int, _descriptors())):
            if index % _STEP == _STEP - 1:
                await asyncio.sleep(0)
            with contextlib.suppress(OSError):  # it is gone
                status = os.fstat(fd)
                known = self._known.get(fd)
                if known is None or known.inode != status.st_ino:
                    peer = self._peer_of(fd) if stat.S_ISSOCK(status.st_mode) else ""
                    known = _Descriptor(status.st_ino, peer, self._looks)
                found[fd] = known
        return found

    def _peer_of(self, fd: int) -> str:
        """The other end of a connection to this server, as gRPC writes it; nothing for any other socket."""
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as duplicate:
            if duplicate.family not in {socket.AF_INET, socket.AF_INET6} or duplicate.getsockname()[1] != self._port:
                return ""
            return grpc_peer(*duplicate.getpeername()[:2])
        return ""


class NotingGuard:
    """A guard that notes in the table whose calls it let in."""

    def __init__(self, guard: Guard, connections: ConnectionTable) -> None:
        self._guard = guard
        self._connections = connections
        self.recognise = guard.recognise

    def charge(self, caller: Caller | None, token: str, peer: str, scope: Scope) -> None:
        """As the guard does."""
        self._guard.charge(caller, token, peer, scope)
        self._connections.admit(peer)

    def admit(self, token: str, peer: str, scope: Scope) -> Caller:
        """As the guard does."""
        caller = self._guard.admit(token, peer, scope)
        self._connections.admit(peer)
        return caller

    def enter(self, token: str, peer: str, right: Right, ended: Ended) -> Visit:
        """As the guard does."""
        visit = self._guard.enter(token, peer, right, ended)
        self._connections.admit(peer)
        return visit


def _descriptors() -> list[str]:
    """The numbers of all descriptors of this process."""
    return os.listdir("/dev/fd")  # noqa: PTH208 - ten times as fast as paths, for as many as there are


def grpc_peer(host: str, port: int) -> str:
    """An address as gRPC writes it."""
    host = host.removeprefix("::ffff:")
    return f"ipv6:%5B{host.replace('%', '%25')}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"


def _is_shut_down(fd: int, inode: int) -> bool:
    """Whether the descriptor was still that socket, which is now shut down; gRPC then closes it."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as duplicate:
        if os.fstat(duplicate.fileno()).st_ino == inode:
            duplicate.shutdown(socket.SHUT_RDWR)
            return True
    return False
