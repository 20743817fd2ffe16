"""Bytes from a server of the wire: a client, a blocking client, a worker and the redirect get a value or a known error.

An input is the data of one server, in pieces of any size: its opening, then replies to a call of some method, the items
of a stream, or messages to a worker, valid or not. Then the server ends the connection.
"""

import asyncio
import random
import socket
from contextlib import aclosing
from typing import Any, cast

from holdfast.client.blocking_transport import BlockingTransport
from holdfast.client.wire_redirect import named_ports
from holdfast.client.wire_transport import WireTransport
from holdfast.client.wire_work import WireWork
from holdfast.errors import HoldfastError, UnavailableError
from holdfast.ports import Directive, Introduction
from holdfast.wire import messages as wire
from holdfast.wire.frames import framed
from holdfast.wire.methods import WireMethod
from tests.fuzz.source import Source
from tests.fuzz.wire_ends import MemoryEndpoint, MemoryTransport
from tests.fuzz.wire_values import METHODS, request_bytes, response_of
from tests.fuzz.world import run, settle

EXAMPLES = 300
IS_GUIDED = False

_MESSAGES_MAX = 4
_PIECES_MAX = 200
_PORT_MAX = 65_535
#: A request of no method: the server of this target does not read it.
_REQUEST: Any = ("x",)


def seeds() -> list[bytes]:
    """Replies of each method, streams, messages to a worker, and responses of a gRPC port."""
    rng = random.Random(0)
    calls = [bytes([way, 255, number, 1]) + rng.randbytes(200) for way in range(3) for number in range(len(METHODS))]
    work = [bytes([3, 255, 0, 1]) + rng.randbytes(300) for _ in range(40)]
    begun = _frame(4, 0, 0, b"") + _frame(1, 4, 1, b"\x88")
    named, beyond = (begun + _frame(0, 0, 1, bytes(5) + message) for message in (b"\x08\xd2\x09", b"\x08\xff\xff\x7f"))
    grpc = [named, beyond, begun + _frame(1, 5, 1, b"\x88"), named[:-2], b"\xff" * 40]
    return [*calls, *work, *(b"\4" + data for data in grpc)]


def fuzz(data: bytes) -> None:
    """Sends the data of one server."""
    source = Source(data)
    way = source.below(5)
    if way == 4:
        _redirect(source.rest())
    elif way == 2:
        _call_blocking(source)
    else:
        run({0: _call, 1: _stream, 3: _work}[way](source))


# -- ways to use a connection


async def _call(source: Source) -> None:
    method, endpoint = _prepared(source)
    try:
        carrier = await WireTransport.connect(endpoint)
        await carrier.call(method, _REQUEST, None)
    except HoldfastError as error:
        _check(error)
    await settle()


async def _stream(source: Source) -> None:
    method, endpoint = _prepared(source)
    try:
        async with aclosing(WireTransport(endpoint).stream(method, _REQUEST)) as items:
            async for _ in items:
                pass
    except HoldfastError as error:
        _check(error)
    await settle()


async def _work(source: Source) -> None:
    _, endpoint = _prepared(source, is_work=True)
    try:
        session = await WireWork(endpoint).open(Introduction("w", frozenset({"echo"})))
    except HoldfastError as error:
        _check(error)
        return
    try:
        while True:
            directive = await session.next()
            assert isinstance(directive, Directive)
            await session.want(1)
    except HoldfastError as error:
        _check(error)
    await session.close()
    await settle()


def _call_blocking(source: Source) -> None:
    size = 1 + source.below(256)
    method = source.pick(METHODS)
    line = _ScriptedSocket([*_pieces(_opened(source), size), *_pieces(_replies(source, method), size)])
    carrier = None
    try:
        carrier = BlockingTransport.connect(_OneSocket(line))
        carrier.call(method, _REQUEST, None)
    except HoldfastError as error:
        _check(error)
    if carrier is not None:
        carrier.drop()
    assert line.is_closed, "a connection was left open"


def _redirect(data: bytes) -> None:
    try:
        port = named_ports(cast("socket.socket", _ScriptedSocket([data])), "127.0.0.1:1", is_secure=False).wire
    except OSError:
        return
    assert 0 <= port <= _PORT_MAX


def _check(error: HoldfastError) -> None:
    assert isinstance(error.message, str)
    assert isinstance(error.reason, str)


# -- the server of the input


def _prepared(source: Source, *, is_work: bool = False) -> tuple[WireMethod[Any, Any], MemoryEndpoint]:
    """A method, and an endpoint whose server answers as the input says."""
    size = 1 + source.below(256)
    method = source.pick(METHODS)
    opened = _opened(source)
    rest = _pushes(source) if is_work else _replies(source, method)

    def answer(transport: MemoryTransport) -> None:
        loop = asyncio.get_running_loop()
        first = _pieces(opened, size)
        for piece in first:
            loop.call_soon(transport.deliver, piece)

        def sent(_: bytes) -> None:
            transport.on_sent = _ignore
            for piece in _pieces(rest, size):
                loop.call_soon(transport.deliver, piece)
            loop.call_soon(transport.lose)

        transport.on_sent = sent
        if is_work:  # the introduction was sent with the opening
            sent(b"")
        elif not _is_opened(opened):
            loop.call_soon(transport.lose)

    return method, MemoryEndpoint(answer)


def _opened(source: Source) -> bytes:
    if source.below(8):
        return framed(wire.encode(wire.Opened(wire.VERSION)))
    return framed(request_bytes(source, wire.Opened, ())) if source.below(4) else source.take(source.below(64))


def _is_opened(data: bytes) -> bool:
    return data == framed(wire.encode(wire.Opened(wire.VERSION)))


def _replies(source: Source, method: WireMethod[Any, Any]) -> bytes:
    stream = b""
    for _ in range(1 + source.below(_MESSAGES_MAX)):
        kind = source.pick((wire.LAST, wire.MORE, wire.ERROR, wire.LAST, source.below(256)))
        body = request_bytes(source, wire.WireFailure if kind == wire.ERROR else response_of(method), ())
        head = wire.encode((source.pick((1, 0, 1, 1, 2)), kind))
        whole = b"\x93" + head[1:] + body
        stream += framed(request_bytes(source, wire.Reply, ()) if source.is_one_in(8) else whole)
    return stream + source.take(8 if source.is_one_in(8) else 0)


def _pushes(source: Source) -> bytes:
    stream = b""
    for _ in range(1 + source.below(_MESSAGES_MAX)):
        is_error = source.is_one_in(6)
        body = request_bytes(source, wire.WireFailure if is_error else Directive, ())
        whole = b"\x92" + wire.encode(wire.ERROR if is_error else wire.LAST) + body
        stream += framed(request_bytes(source, wire.Push, ()) if source.is_one_in(8) else whole)
    return stream + source.take(8 if source.is_one_in(8) else 0)


def _pieces(data: bytes, size: int) -> list[bytes]:
    """The data in pieces; the rest of long data is one piece, which bounds the time of an input."""
    cut = [data[at : at + size] for at in range(0, min(len(data), size * _PIECES_MAX), size)]
    return [piece for piece in (*cut, data[size * _PIECES_MAX :]) if piece]


class _ScriptedSocket:
    """A socket that receives these pieces, and then the end of the connection."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces
        self.is_closed = False

    def recv(self, size: int) -> bytes:
        """The next piece, or as much of it as was asked for."""
        if not self._pieces:
            return b""
        piece = self._pieces.pop(0)
        if piece[size:]:
            self._pieces.insert(0, piece[size:])
        return piece[:size]

    def sendall(self, data: bytes) -> None:
        """Drops what the client sends."""

    def settimeout(self, _: float | None) -> None:
        """Does nothing: no piece has to be waited for."""

    def shutdown(self, _: int) -> None:
        """Does nothing: `close` follows."""

    def close(self) -> None:
        self.is_closed = True


class _OneSocket:
    """An endpoint with one connection."""

    token = ""
    shard = wire.NO_SHARD
    missed_port = 0

    def __init__(self, line: _ScriptedSocket) -> None:
        self._line = line

    async def connect(self, made: Any) -> Any:  # noqa: ANN401 - a protocol
        """Refuses: this endpoint is for blocking callers."""
        raise NotImplementedError

    def connect_blocking(self) -> socket.socket:
        return cast("socket.socket", self._line)

    def redirect(self) -> bool:
        return False

    def follow(self, leader: str) -> bool:
        del leader
        return False

    def unreachable(self, why: str) -> UnavailableError:
        return UnavailableError(f"no server answers: {why}", reason="UNREACHABLE")


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _ignore(_: bytes) -> None:
    """Drops what the client sends."""
