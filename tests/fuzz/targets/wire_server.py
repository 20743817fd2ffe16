"""Bytes on a connection of the wire: answered, or the connection is closed, and no other connection is affected.

An input is the data of one client, in pieces of any size: an opening, then frames with calls of every method or with a
worker's messages, valid or not. A call that is refused, and a message that cannot be decoded, leave every byte of the
journal as it was. Another client, over the socket of the directory, is answered before and after.
"""

import random
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from holdfast import limits
from holdfast.core.commands import Submitted
from holdfast.core.model import ScheduleSpec, Template
from holdfast.errors import Code
from holdfast.ports import Directive, Introduction, JobDraft, JobQuery
from holdfast.server.auth import tokens
from holdfast.server.auth.permissions import Scope
from holdfast.server.auth.rate_limits import Budgets
from holdfast.server.auth.token_guard import TokenGuard
from holdfast.server.refusal_log import SOCKET_PEER
from holdfast.server.wire.calls import table
from holdfast.server.wire.connection import WireService
from holdfast.wire import messages as wire
from holdfast.wire import methods
from holdfast.wire.frames import FrameReader, framed
from holdfast.wire.methods import NOTHING, WireMethod
from tests.fuzz.source import Source
from tests.fuzz.wire_ends import ServedEnd
from tests.fuzz.wire_values import METHODS, request_bytes, request_of
from tests.fuzz.world import NOW_MS, PATIENCE_S, World, run, settle

EXAMPLES = 80
IS_GUIDED = False

_MESSAGES_MAX = 6
_PIECES_MAX = 200
_PURPOSES = (wire.CALLS, wire.WORK)
_CODES = {code.value for code in Code} - {Code.INTERNAL.value}
_NIGHTLY = ScheduleSpec("nightly", Template("echo"), cron="0 3 * * *")
#: The first bytes of clients of release 0.1, and of one that sends nothing.
_OLDER = (b"C", b"W", b"")
_CLOSED = "the connection was closed"
_decode_directive = msgspec.msgpack.Decoder(Directive).decode


def seeds() -> list[bytes]:
    """Calls of each method, conversations and workers with tokens of every scope, and other beginnings."""
    rng = random.Random(0)
    admin = len(Scope) - 1
    calls = [
        bytes([0, admin, 0, 255, 0, number]) + rng.randbytes(120) for number in range(len(METHODS)) for _ in range(4)
    ]
    talks = [
        bytes([0, scope, purpose, size, 5]) + rng.randbytes(400)
        for scope in range(len(_tokens()))
        for purpose in (0, 1)
        for size in (255, 2)
    ]
    workers = [bytes([0, 2, 1, 255, 5]) + rng.randbytes(400) for _ in range(40)]
    return [*calls, *talks, *workers, *(bytes([beginning]) + rng.randbytes(60) for beginning in range(1, 6))]


def fuzz(data: bytes) -> None:
    """Sends the data of one client."""
    run(_fuzz(Source(data)))


async def _fuzz(source: Source) -> None:
    world = World()
    await world.begin()
    service = WireService(world.backend, world.terms, guard=_guard())
    local = WireService(world.backend, world.terms)
    asker = _Client(local, SOCKET_PEER)
    await asker.open(world)
    ids = await _served(asker, world)
    await asker.call(world, methods.SET_SCHEDULE, methods.ScheduleChange(_NIGHTLY))
    await asker.call(world, methods.CANCEL, methods.JobCancel(ids[0]))
    talker = _Talker(source, world, _Client(service), ids)
    await talker.talk()
    talker.client.end.lose()
    await world.settle()
    await _served(asker, world)
    asker.end.lose()
    await settle()
    assert not service._connections, "a connection that is over is still known"
    assert not local._connections, "a connection that is over is still known"
    await world.end()


# -- tokens


@cache
def _tokens() -> tuple[str, ...]:
    """A token of each scope, in the order of the scopes; then no token, an expired one, and an unknown one."""
    path = _token_file()
    valid = [tokens.create(path, scope.value, [scope], now_ms=1) for scope in Scope]
    old = tokens.create(path, "old", [Scope.ADMIN], now_ms=1, expires_at_ms=2)
    return (*valid, "", old, "hf_unknown")


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="holdfast-fuzz-")


def _token_file() -> Path:
    return Path(_folder().name) / tokens.FILE_NAME


def _guard() -> TokenGuard:
    _tokens()
    return TokenGuard(_token_file(), Budgets(), lambda: NOW_MS)


# -- the client of the input


class _Talker:
    """Sends an opening and messages that an input describes, and checks the answers to each."""

    def __init__(self, source: Source, world: World, client: "_Client", ids: list[str]) -> None:
        self._source = source
        self._world = world
        self.client = client
        self._ids = ids
        self._size = 0
        #: The scope of the caller, once it was admitted.
        self._scope: Scope | None = None
        #: Whether the worker said goodbye: the end of its connection then returns its leases, which is written.
        self._is_leaving = self._is_introduced = False
        #: The scope that each call in progress needs.
        self._needed: dict[int, Scope | None] = {}
        self._scopes = {name: row.scope for name, row in table(world.backend).items()}

    async def talk(self) -> None:
        """Sends everything that the input describes, or as much as the server takes."""
        purpose = await self._open()
        if purpose is None:
            return
        for _ in range(1 + self._source.below(_MESSAGES_MAX)):
            if self.client.end.is_over:
                break
            await (self._call() if purpose == wire.CALLS else self._report())
        # At last a message whose length may be wrong.
        await self._send(self._source.take(4) + request_bytes(self._source, wire.Call, self._ids))

    async def _open(self) -> str | None:
        """Opens the connection; returns its purpose, or None if it was refused or closed."""
        source = self._source
        beginning = source.below(6)
        token, purpose = source.pick(_tokens()), source.pick(_PURPOSES)
        self._size = 1 + source.below(256)
        stream = wire.MAGIC + framed(wire.encode(wire.Opening(1, 1, purpose, token, "fuzz")))
        if beginning == 1:
            stream = wire.MAGIC + framed(request_bytes(source, wire.Opening, _tokens()))
        elif beginning > 1:
            stream = source.pick((wire.MAGIC, b"C", b"W", b"GET / HTTP/1.1\r\n\r\n", b"")) + source.take(64)
        before = self._world.mark
        await self._send(stream)
        assert self._world.mark == before, "an opening has left a trace"
        answers = self.client.frames()
        if not stream.startswith(wire.MAGIC):
            # A client of release 0.1 gets one answer, and may then finish its own message.
            assert self.client.end.is_over or stream[:1] in _OLDER, "the connection of a stranger stays open"
            assert len(answers) <= (stream[:1] in _OLDER), "a stranger is answered"
            return None
        if not answers:
            return None  # it was closed, or is incomplete
        opened = wire.decode_opened(answers[0])
        if opened.version == 0:
            assert opened.code in _CODES, opened
            assert self.client.end.is_over, "a refused connection stays open"
            return None
        assert beginning < 2 or stream, "an admitted opening"
        sent = wire.decode_opening(stream[len(wire.MAGIC) + 4 :])
        self._scope = next(iter([scope for scope, one in zip(Scope, _tokens(), strict=False) if one == sent.token]))
        assert sent.purpose == wire.CALLS or self._scope in (Scope.WORK, Scope.ADMIN), "a worker without the scope"
        return sent.purpose

    async def _call(self) -> None:
        source = self._source
        method = source.pick(METHODS)
        call = wire.encode((1 + source.below(64), "" if source.is_one_in(16) else method.name))
        body = request_bytes(source, request_of(method), self._ids)
        message = b"\x93" + call[1:] + body
        if source.is_one_in(8):
            message = request_bytes(source, wire.Call, self._ids)
        before = await self._mark()
        await self._send(framed(message))
        answers = [wire.decode_reply(answer) for answer in self.client.frames()]
        try:
            made = wire.decode_call(message)
        except wire.MALFORMED:
            made = None
        if made is None or self.client.end.is_over:
            assert self._world.mark == before, "a message that cannot be decoded has left a trace"
            return
        if made.method:
            self._needed[made.id] = self._scopes.get(made.method)
        for answer in answers:
            self._check(answer)
        if any(answer.id == made.id and answer.kind == wire.ERROR for answer in answers):
            assert self._world.mark == before, f"{made.method} was refused and left a trace"

    def _check(self, answer: wire.Reply) -> None:
        """Checks that the reply reports no server error, and that the caller has the scope of its call."""
        code = wire.decode_failure(answer.body).code if answer.kind == wire.ERROR else ""
        assert not code or code in _CODES, answer
        needed = self._needed.get(answer.id)
        if needed is not None and self._scope not in (needed, Scope.ADMIN):
            assert code == Code.PERMISSION_DENIED.value, f"{self._scope} was admitted where {needed} is needed: {code}"

    async def _report(self) -> None:
        if self._is_introduced or self._source.is_one_in(8):
            message = request_bytes(self._source, wire.WorkerMessage, self._ids)
        else:
            self._is_introduced = True
            message = wire.encode(wire.WorkerMessage(Introduction("w1", frozenset({"echo"})), credits=2))
        before = await self._mark()
        await self._send(framed(message))
        try:
            self._is_leaving |= wire.decode_worker_message(message).is_leaving
        except wire.MALFORMED:
            assert self.client.end.is_over, "a message that cannot be decoded was accepted"
            assert self._world.mark == before or self._is_leaving, "a message that cannot be decoded has left a trace"
        for answer in self.client.frames():
            push = wire.decode_push(answer)
            if push.kind == wire.ERROR:
                assert wire.decode_failure(push.body).code in _CODES, push
            else:
                _decode_directive(push.body)

    async def _mark(self) -> tuple[int, int]:
        await self._world.settle()  # until the effects of earlier calls are over
        return self._world.mark

    async def _send(self, stream: bytes) -> None:
        """Sends the bytes in pieces; the rest of a long stream is one piece, which bounds the time of an input."""
        at = number = 0
        while at < len(stream):
            size = self._size if number < _PIECES_MAX else len(stream)
            self.client.end.deliver(stream[at : at + size])
            at, number = at + size, number + 1
        await self._world.settle()
        await self._world.settle()


# -- the other client


async def _served(client: "_Client", world: World) -> list[str]:
    """Submits two jobs and reads views of everything, to show that the client is served; returns the ids."""
    submission = methods.Submission([Template("echo")], [JobDraft(payload=b"{}"), JobDraft()])
    submitted = await client.call(world, methods.SUBMIT, submission)
    for method in (methods.STATS, methods.QUEUES, methods.WORKERS, methods.SCHEDULES, methods.CAPABILITIES):
        await client.call(world, method, NOTHING)
    await client.call(world, methods.FIND, methods.JobSearch(JobQuery(), "", limits.PAGE_SIZE_MAX))
    assert isinstance(submitted, Submitted)
    return submitted.job_ids


class _Client:
    """A client of a server, without a network."""

    def __init__(self, service: WireService, peer: str = "127.0.0.1:50000") -> None:
        self.end = ServedEnd(service, peer)
        self._reader = FrameReader(limits.MESSAGE_BYTES_MAX)
        self._calls = 0

    async def open(self, world: World) -> None:
        """Opens the connection for calls."""
        self.end.deliver(wire.MAGIC + framed(wire.encode(wire.Opening(1, 1, wire.CALLS))))
        await world.settle()
        (opened,) = self.frames()
        assert wire.decode_opened(opened).version == wire.VERSION

    async def call(self, world: World, method: WireMethod[Any, Any], request: object) -> object:
        """Makes a call that is answered without an error."""
        self._calls += 1
        self.end.deliver(framed(wire.encode((self._calls, method.name, request))))
        answers: Iterable[bytes] = ()
        for _ in range(int(PATIENCE_S * 1_000)):
            await world.settle()
            answers = self.frames()
            if answers or self.end.is_over:
                break
        assert not self.end.is_over, _CLOSED
        (reply,) = map(wire.decode_reply, answers)
        assert (reply.id, reply.kind) == (self._calls, wire.LAST), (method, reply)
        return method.decode_response(reply.body)

    def frames(self) -> list[bytes]:
        """The messages since the last call."""
        sent = self.end.take_sent()
        return self._reader.feed(sent) if sent else []
