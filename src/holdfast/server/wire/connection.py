"""One connection on the wire: the opening, then calls or the session of a worker.

Invariants: nothing but the opening, whose size is limited, is read before the caller is admitted. A connection with
malformed data is dropped and logged; others are not affected.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import msgspec

from holdfast import __version__, limits
from holdfast.errors import (
    FailedPreconditionError,
    HoldfastError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
    UnimplementedError,
)
from holdfast.ledger.session_messages import LeaseTerms
from holdfast.observe.logs import get_logger
from holdfast.server.auth.permissions import CallerSession, Guard, OpenAccess, Scope
from holdfast.server.backend import Backend
from holdfast.server.descriptors import ConnectionBudget
from holdfast.server.message_counts import MessageCounts, counted, message_counts
from holdfast.server.refusal_log import SOCKET_PEER, log_refusal
from holdfast.server.wire.calls import Table, table
from holdfast.server.wire.conversation import Conversation
from holdfast.server.wire.older_clients import refusal_of_older
from holdfast.server.wire.worker_session import ServedWorker
from holdfast.wire.frames import LENGTH_BYTES, FramedProtocol, MalformedFrameError, length_of
from holdfast.wire.keepalive import keep_alive
from holdfast.wire.messages import (
    CALLS,
    MAGIC,
    MALFORMED,
    NO_SHARD,
    OPENED_CHARS_MAX,
    OPENING_BYTES_MAX,
    SHARD_NEEDED,
    VERSION,
    WORK,
    NotLeaderError,
    Opened,
    Opening,
    decode_opening,
    encode,
)

_HEAD_BYTES = len(MAGIC) + LENGTH_BYTES
_TLS = "TLSv1.3"


class WireHandler(Protocol):
    """The rest of a connection after its opening."""

    def take(self, message: bytes) -> None:
        """Handles one message; raises if it cannot be decoded."""
        ...

    def stop(self) -> None:
        """Closes the connection as soon as its client can do without it, because the server stops."""
        ...

    def end(self, error: HoldfastError) -> None:
        """Ends the connection with an error."""
        ...

    def close(self) -> None:
        """Handles the loss of the connection."""
        ...


class ShardServices(Protocol):
    """The shards of a cluster, as the wire of one of its nodes serves them."""

    @property
    def total(self) -> int:
        """The number of shards."""
        ...

    def service(self, shard: int) -> "WireService | None":
        """Returns the service of a shard that this node leads; None for any other shard."""
        ...

    def leader(self, shard: int) -> str:
        """Returns the address of the node that leads a shard; "" if there is none at the moment."""
        ...


class WireService:
    """The state that all wire connections of a server share: the methods, the source of work, and the connections."""

    def __init__(
        self,
        backend: Backend,
        terms: LeaseTerms,
        *,
        guard: Guard | None = None,
        connections_max: int = limits.WIRE_CONNECTIONS_MAX,
        budget: ConnectionBudget | None = None,
        shards: ShardServices | None = None,
    ) -> None:
        """Without a `guard` every caller is admitted: only for sockets that other users cannot open.

        `budget` is the one of the process, if it serves the wire on several ports. `shards` are those of a cluster.
        """
        self._backend = backend
        self._terms = terms
        self._table: Table = table(backend)
        self._guard = guard
        self._connections_max = connections_max
        self._budget = budget or ConnectionBudget()
        self._shards = shards
        self._connections: dict[WireConnection, None] = {}
        #: Connections whose opening has not arrived.
        self._fresh: set[WireConnection] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._is_stopping = False

    def connection(self, peer: str = SOCKET_PEER) -> "WireConnection":
        """Returns the server's end of a new connection."""
        return WireConnection(self, peer)

    async def stop(self, grace_s: float) -> None:
        """Notifies workers, answers calls in progress until the grace ends, then closes all connections."""
        self.dismiss()
        try:
            async with asyncio.timeout(grace_s):
                await self._empty.wait()
        except TimeoutError:
            for connection in list(self._connections):
                connection.drop()

    @property
    def is_used(self) -> bool:
        """Whether callers are connected."""
        return bool(self._connections)

    def dismiss(self) -> None:
        """Notifies workers, answers calls in progress, and opens no more connections."""
        self._is_stopping = True
        for connection in [*self._fresh, *self._connections]:
            connection.stop()

    @property
    def shards(self) -> int:
        """The number of shards of the cluster; 0 without one."""
        return self._shards.total if self._shards is not None else 0

    # -- for connections

    def _concerned(self, shard: int) -> "WireService":
        """Returns the service for a shard; raises `NotLeaderError` if another node leads it."""
        if shard == NO_SHARD:
            return self
        if self._shards is None or not 0 <= shard < self._shards.total:
            message = f"this server has no shard {shard}; connect to the addresses of one cluster"
            raise InvalidArgumentError(message, reason="SHARD_UNKNOWN")
        service = self._shards.service(shard)
        if service is None:
            raise _not_leader(shard, self._shards.leader(shard))
        return service

    def made(self, connection: "WireConnection") -> None:
        """Registers a connection that waits for its opening."""
        self._fresh.add(connection)

    def passed_on(self, connection: "WireConnection") -> None:
        """Removes a connection that waited for its opening, because it joins a service now."""
        self._fresh.discard(connection)

    def joined(self, connection: "WireConnection") -> None:
        """Registers a connection whose caller was admitted."""
        self._connections[connection] = None
        self._budget.count += 1
        self._empty.clear()

    def left(self, connection: "WireConnection") -> None:
        """Removes a connection that has ended."""
        self._fresh.discard(connection)
        if self._connections.pop(connection, connection) is None:
            self._budget.count -= 1
            if not self._connections:
                self._empty.set()

    def admitted(
        self, connection: "WireConnection", opening: Opening, ended: Callable[[HoldfastError], None]
    ) -> "Admitted":
        """Checks an opening; raises the error with which it is refused."""
        if not opening.version_min <= VERSION <= opening.version_max:
            raise UnimplementedError(
                f"this server (holdfast {__version__}) knows version {VERSION} of the wire, and the client"
                f" {opening.version_min} to {opening.version_max}; use the same release on both sides",
                reason="WIRE_VERSION",
            )
        if opening.purpose not in (CALLS, WORK):
            raise InvalidArgumentError(
                f"the purpose must be calls or work, got {opening.purpose[:20]!r}", reason="PURPOSE_INVALID"
            )
        if self._is_stopping:
            raise UnavailableError("the server is stopping; try another server, or try again later", reason="STOPPING")
        session = None
        if self._guard is not None:
            right = Scope.WORK if opening.purpose == WORK else OpenAccess.CALLERS
            session = self._guard.enter(opening.token, connection.peer, right, ended)
        try:
            service = self._concerned(opening.shard)
            return Admitted(session, service, service.opened_handler(opening.purpose, connection, session))
        except HoldfastError:
            if session is not None:
                session.leave()
            raise

    def opened_handler(self, purpose: str, connection: "WireConnection", session: CallerSession | None) -> WireHandler:
        """Returns the handler of another connection; raises the error with which it is refused."""
        if len(self._connections) >= self._connections_max or self._budget.is_full:
            message = "the server has too many connections; try again in a moment"
            raise ResourceExhaustedError(message, reason="TOO_MANY_CONNECTIONS")
        if purpose == CALLS:
            return Conversation(self._table, connection, connection.peer, session)
        if self._shards is not None:
            message = "a worker of a cluster connects to the leaders of its shards; use holdfast 0.2 or newer"
            raise FailedPreconditionError(message, reason=SHARD_NEEDED)
        work = self._backend.work
        if work is None:
            raise UnimplementedError(self._backend.elsewhere, reason="WORK_ELSEWHERE")
        return ServedWorker(work, self._terms, connection, connection.peer)


def _not_leader(shard: int, leader: str) -> NotLeaderError:
    where = f"the node at {leader} does" if leader else "no node does at the moment; try again in a second"
    return NotLeaderError(f"this node does not lead shard {shard}: {where}", leader)


class Admitted(msgspec.Struct, frozen=True):
    """An admitted caller."""

    session: CallerSession | None
    #: The service that the connection concerns.
    service: WireService
    handler: WireHandler


class RefusingService(WireService):
    """Refuses every connection with the error of a server that cannot serve yet."""

    def __init__(self, error: Callable[[], HoldfastError]) -> None:
        self._error = error
        self._shards = None
        self._connections = {}
        self._fresh = set()
        self._empty = asyncio.Event()
        self._empty.set()

    def admitted(
        self, connection: "WireConnection", opening: Opening, ended: Callable[[HoldfastError], None]
    ) -> Admitted:
        """Raises the error."""
        raise self._error()


class WireConnection(FramedProtocol):
    """The server's end of one connection."""

    def __init__(self, service: WireService, peer: str) -> None:
        super().__init__(limits.MESSAGE_BYTES_MAX)
        self._service = service
        self.peer = peer
        self._opening = bytearray()
        self._handler: WireHandler | None = None
        self._session: CallerSession | None = None
        #: The number of shards, for `Opened`.
        self._shards = 0
        #: Of an older client that was refused: how much it may still send.
        self._drained_bytes_max = 0
        #: Called once, when the opening is over or the connection is lost before it.
        self.on_opened: Callable[[], None] = _nothing

    def stop(self) -> None:
        """Ends the connection, because the server is stopping."""
        if self._handler is None:
            self.drop()
        else:
            self._handler.stop()

    # -- the opening

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Waits for the opening."""
        super().connection_made(transport)
        self._service.made(self)

    def data_received(self, data: bytes) -> None:
        """Handles the opening first, then frames."""
        if self._handler is not None:
            super().data_received(data)
            return
        if not self.is_open:  # it was refused; TLS may still deliver data
            return
        if self._drained_bytes_max:
            self._drain(data)
            return
        self._opening += data
        rest = self._open()
        if rest:
            super().data_received(rest)

    def _open(self) -> bytes:
        """Handles a complete opening and returns the bytes after it; none while it is incomplete or refused."""
        begun = self._opening
        if not MAGIC.startswith(begun[: len(MAGIC)]):
            self._refuse_strangers(bytes(begun))
            return b""
        if len(begun) < _HEAD_BYTES:
            return b""
        size = length_of(begun, len(MAGIC))
        if size > OPENING_BYTES_MAX:
            self._drop_because(f"expected an opening of at most {OPENING_BYTES_MAX} bytes, got {size}")
            return b""
        end = _HEAD_BYTES + size
        if len(begun) < end:
            return b""
        self._admit(bytes(begun[_HEAD_BYTES:end]))
        self._opening = bytearray()
        return bytes(begun[end:]) if self._handler is not None else b""

    def _admit(self, message: bytes) -> None:
        try:
            opening = decode_opening(message)
        except MALFORMED as error:
            self._drop_because(f"expected an opening: {error}")
            return
        try:
            self._check_tls()
            admitted = self._service.admitted(self, opening, self._ended)
        except HoldfastError as error:
            self._refuse(error)
            return
        self._service.passed_on(self)
        self._shards, self._service = self._service.shards, admitted.service
        self._session, self._handler = admitted.session, admitted.handler
        self._keep_alive()
        counts = message_counts()
        if counts is not None:
            self._count(f"wire/{opening.purpose}", counts)
        self._service.joined(self)
        self._opened()
        self.send(encode(Opened(VERSION, program=__version__, shards=self._shards)))

    def _refuse(self, error: HoldfastError) -> None:
        leader = error.leader if isinstance(error, NotLeaderError) else ""
        if not leader:
            log_refusal(error, "open", self.peer)
        text = error.message[:OPENED_CHARS_MAX]
        self.send(encode(Opened(0, error.code.value, error.reason, text, __version__, self._service.shards, leader)))
        self.close()

    def _check_tls(self) -> None:
        """Refuses versions of TLS that HTTP allows for browsers."""
        secured = self._transport.get_extra_info("ssl_object") if self._transport is not None else None
        if secured is not None and secured.version() != _TLS:
            message = f"the wire requires {_TLS}, got {secured.version()}; use a newer TLS library"
            raise FailedPreconditionError(message, reason="TLS_TOO_OLD")

    def _keep_alive(self) -> None:
        """Lets the system notice that the other machine is gone; a waiting caller may be silent for any time."""
        line = self._transport.get_extra_info("socket") if self._transport is not None else None
        if line is not None and line.family in (socket.AF_INET, socket.AF_INET6):
            with suppress(OSError):  # the connection is lost already
                keep_alive(line)

    def _count(self, name: str, counts: MessageCounts) -> None:
        """Counts the messages of this connection, for the lab."""
        take, send = self.take, self.send

        def counted_take(message: bytes) -> None:
            counted(counts.received, name)
            take(message)

        def counted_send(message: bytes) -> None:
            counted(counts.sent, name)
            send(message)

        self.take, self.send = counted_take, counted_send  # type: ignore[method-assign]

    def _ended(self, error: HoldfastError) -> None:
        """Ends the connection, because its caller lost the permission."""
        if self._handler is not None:
            self._handler.end(error)

    def _refuse_strangers(self, begun: bytes) -> None:
        first = begun[:1]
        why = f"expected the opening of a wire connection, got a connection that begins with {first!r}"
        answer = refusal_of_older(first)
        if not answer:
            self._drop_because(why)
        elif len(begun) > 1:  # the answer is for the first message, which older clients send after this byte
            self.spoiled(MalformedFrameError(why))
            self._opening = bytearray()
            self._drained_bytes_max = limits.MESSAGE_BYTES_MAX
            self.send(answer)
            with suppress(OSError):  # the client is gone already
                self.finish()

    def _drain(self, data: bytes) -> None:
        """Reads on until an older client has its answer: it would lose it, if it could not write its message."""
        self._drained_bytes_max -= len(data)
        if self._drained_bytes_max <= 0:
            self.drop()

    def _opened(self) -> None:
        opened, self.on_opened = self.on_opened, _nothing
        opened()

    # -- messages

    def take(self, message: bytes) -> None:
        """Handles a complete message."""
        if self._handler is not None and self.is_open:
            try:
                self._handler.take(message)
            except MALFORMED:
                self._drop_because(f"expected a message, got {len(message)} bytes that cannot be decoded")
            except HoldfastError as error:
                self._drop_because(error.message)

    def _drop_because(self, message: str) -> None:
        self.spoiled(MalformedFrameError(message))
        self.close()

    def spoiled(self, error: MalformedFrameError) -> None:
        """Logs why the connection is dropped."""
        get_logger().warning("connection_dropped", peer=self.peer, message=str(error))

    def pause_writing(self) -> None:
        """Stops reading from a client that does not read its replies."""
        super().pause_writing()
        self.hold("unread replies", is_held=True)

    def resume_writing(self) -> None:
        """Resumes reading once the client has caught up."""
        super().resume_writing()
        self.hold("unread replies", is_held=False)

    def eof_received(self) -> bool:
        """Closes the connection after sending pending output: a client that has finished sending awaits no replies."""
        if self._opening or not self._reader.is_between:
            self.spoiled(MalformedFrameError("the connection ended in the middle of a message"))
        self.close()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the calls or the session of the client, which is gone."""
        super().connection_lost(exc)
        if self._handler is not None:
            self._handler.close()
        if self._session is not None:
            self._session.leave()
        self._service.left(self)
        self._opened()


def _nothing() -> None:
    """Does nothing."""
