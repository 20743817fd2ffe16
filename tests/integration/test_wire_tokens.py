"""Tokens over the wire: admission of openings, scopes of calls, and the end of calls whose permission is lost."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from holdfast.client.access import Access
from holdfast.client.blocking_client import BlockingClient
from holdfast.client.endpoints import TcpEndpoint
from holdfast.client.wire_transport import WireTransport
from holdfast.client.wire_work import WireWork
from holdfast.core.model import Template
from holdfast.errors import Code, HoldfastError, UnauthenticatedError
from holdfast.ports import Assignment, Introduction, JobDraft
from holdfast.server.auth import tokens
from holdfast.server.auth.permissions import Scope
from holdfast.server.ledger_server import LedgerServer
from holdfast.server.unix_socket import SOCKET_NAME
from holdfast.server.wire.calls import table
from holdfast.wire import messages as wire
from holdfast.wire import methods
from holdfast.wire.frames import framed
from holdfast.wire.methods import NOTHING, WireMethod
from holdfast.worker.config import WorkerConfig
from holdfast.worker.handlers import Handler
from holdfast.worker.runtime import Worker
from tests.integration.conftest import Start
from tests.integration.raw_wire import RawWire, raw_wire

METHODS = {one.name: one for one in vars(methods).values() if isinstance(one, WireMethod)}
EVERY_PURPOSE = pytest.mark.parametrize("purpose", [wire.CALLS, wire.WORK])
#: A body that no method takes: an admitted call is refused, and nothing happens.
NO_REQUEST = None


class Guarded:
    """A server with a token of each scope."""

    def __init__(self, server: LedgerServer, path: Path, tokens_by_name: dict[str, str]) -> None:
        self.server = server
        self.path = path
        self.tokens = tokens_by_name

    @property
    def address(self) -> str:
        """The port of HTTP and the wire."""
        return self.server.http_address

    def endpoint(self, name: str) -> TcpEndpoint:
        return TcpEndpoint(self.address, Access(token=self.tokens[name]))

    def revoke(self, name: str) -> None:
        """Revokes a token, and reloads the tokens now instead of within a second."""
        tokens.revoke(self.path, name)
        self.server.public_server.protection.guard.look()

    def journal(self) -> dict[str, bytes]:
        """All files of the server's jobs."""
        ignored = {SOCKET_NAME, "LOCK", tokens.FILE_NAME, tokens.LOCK_NAME}
        return {path.name: path.read_bytes() for path in self.path.parent.iterdir() if path.name not in ignored}


@pytest.fixture
async def guarded(start: Start, tmp_path: Path) -> Guarded:
    path = tmp_path / "data" / tokens.FILE_NAME
    made = {scope.value: tokens.create(path, scope.value, [scope], now_ms=1) for scope in Scope}
    made["expired"] = tokens.create(path, "expired", [Scope.ADMIN], now_ms=1, expires_at_ms=2)
    made["revoked"] = tokens.create(path, "revoked", [Scope.ADMIN], now_ms=1)
    tokens.revoke(path, "revoked")
    made |= {"missing": "", "wrong": "hf_" + "A" * 43, "odd": "é\0\n" * 40}
    server = await start(no_http=False, http_port=0)
    await server.admin.stats()  # answered when the event of the start is durable
    return Guarded(server, path, made)


# -- openings

REFUSED = {
    "missing": "TOKEN_MISSING",
    "wrong": "TOKEN_UNKNOWN",
    "odd": "TOKEN_UNKNOWN",
    "revoked": "TOKEN_UNKNOWN",
    "expired": "TOKEN_EXPIRED",
}


@EVERY_PURPOSE
@pytest.mark.parametrize("name", REFUSED)
async def test_opening_without_a_valid_token_is_refused(guarded: Guarded, purpose: str, name: str) -> None:
    """An opening without a valid token gets one error with the reason, and nothing after it is read."""
    before = guarded.journal()
    async with raw_wire(guarded.address) as line:
        line.send(wire.MAGIC + framed(wire.encode(wire.Opening(1, 1, purpose, guarded.tokens[name]))))
        line.call(1, methods.SUBMIT, methods.Submission([Template("echo")], [JobDraft()]))
        opened = wire.decode_opened(await line.message())
        assert (opened.version, opened.code, opened.reason) == (0, "UNAUTHENTICATED", REFUSED[name])
        assert opened.message
        assert await line.rest() == b""
    assert guarded.journal() == before


@pytest.mark.parametrize("name", ["submit", "read", "work", "admin"])
async def test_worker_needs_the_scope_of_workers(guarded: Guarded, name: str) -> None:
    """A token of any scope opens a connection for calls; only `work` and `admin` open the session of a worker."""
    async with raw_wire(guarded.address) as line:
        assert (await line.open(wire.CALLS, guarded.tokens[name])).version == wire.VERSION
    async with raw_wire(guarded.address) as line:
        opened = await line.open(wire.WORK, guarded.tokens[name])
        if name in {"work", "admin"}:
            assert opened.version == wire.VERSION
            return
        assert (opened.version, opened.code, opened.reason) == (0, "PERMISSION_DENIED", "SCOPE_MISSING")
        assert await line.rest() == b""


async def test_tokens_are_neither_logged_nor_repeated(guarded: Guarded) -> None:
    """Neither the log nor an error contains a token, whether it is valid or not."""
    with capture_logs() as logs:
        messages = []
        for name in guarded.tokens:
            async with raw_wire(guarded.address) as line:
                messages.append(str(await line.open(wire.WORK, guarded.tokens[name])))
    assert len(logs) >= len(REFUSED)
    shown = [token for token in guarded.tokens.values() if token and token in f"{logs}{messages}"]
    assert not shown


async def test_guesses_are_limited_by_address(start: Start, tmp_path: Path) -> None:
    """Openings with wrong tokens count against the rate limit of their address, and valid tokens are unaffected."""
    path = tmp_path / "data" / tokens.FILE_NAME
    token = tokens.create(path, "all", [Scope.ADMIN], now_ms=1)
    server = await start(no_http=False, http_port=0, rate_limit=5)
    reasons: set[str] = set()
    while "OVER_BUDGET" not in reasons:  # on a slow machine the budget refills meanwhile
        for _ in range(20):
            async with raw_wire(server.http_address) as line:
                reasons.add((await line.open(token="hf_guess")).reason)
    assert reasons == {"TOKEN_UNKNOWN", "OVER_BUDGET"}
    async with raw_wire(server.http_address) as line:
        assert (await line.open(token=token)).version == wire.VERSION


# -- calls


def test_every_method_of_the_wire_is_served(guarded: Guarded) -> None:
    """The table of the server has every method of `wire/methods.py` with a scope, and no other."""
    served = table(guarded.server.backend)
    assert served.keys() == METHODS.keys()
    assert all(isinstance(row.scope, Scope) for row in served.values())
    assert {name for name, row in served.items() if row.is_stream} == {
        name for name, method in METHODS.items() if method.is_stream
    }


@pytest.mark.parametrize("name", ["submit", "read", "work", "admin"])
async def test_every_call_needs_its_scope(guarded: Guarded, name: str) -> None:
    """A call without its scope is refused before its request is decoded, and leaves the connection open."""
    before = guarded.journal()
    async with raw_wire(guarded.address) as line:
        await line.open(token=guarded.tokens[name])
        for number, (called, row) in enumerate(table(guarded.server.backend).items(), 1):
            line.call(number, called, NO_REQUEST)
            call_id, failure = await line.failure()
            may = name in {row.scope.value, "admin"}
            expected = ("INVALID_ARGUMENT", "MESSAGE_MALFORMED") if may else ("PERMISSION_DENIED", "SCOPE_MISSING")
            assert (call_id, failure.code, failure.reason) == (number, *expected), called
        line.call(99, "jobs.nothing", NO_REQUEST)
        assert (await line.failure())[1].code == "UNIMPLEMENTED"
    assert guarded.journal() == before


async def test_calls_are_counted_one_by_one(start: Start) -> None:
    """Above the rate limit each call is refused by itself, and the messages of workers are not limited by it."""
    server = await start(no_http=False, http_port=0, rate_limit=5)
    async with raw_wire(server.http_address) as line, raw_wire(server.http_address) as worker:
        await line.open()
        await worker.open(wire.WORK)
        refused = 0
        while not refused:  # on a slow machine the budget refills meanwhile
            for number in range(1, 41):
                line.call(number, methods.STATS, NOTHING)
            replies = [await line.reply() for _ in range(40)]
            failures = [wire.decode_failure(reply.body) for reply in replies if reply.kind == wire.ERROR]
            refused = len(failures)
            assert all((one.code, one.reason) == ("RESOURCE_EXHAUSTED", "OVER_BUDGET") for one in failures)
            assert refused < len(replies)
        worker.send(framed(wire.encode(wire.WorkerMessage(Introduction("w", frozenset({"echo"}))))))
        for _ in range(40):
            worker.send(framed(wire.encode(wire.WorkerMessage(is_heartbeat=True))))
        assert wire.decode_push(await worker.message()).kind == wire.LAST
        assert [view.worker_id for view in await server.admin.workers()] == ["w"]


# -- permissions that are lost


async def test_revoked_token_ends_its_connections(guarded: Guarded) -> None:
    """A revoked token ends its calls, streams and sessions with UNAUTHENTICATED, and those of other tokens go on."""
    (job_id,) = (await guarded.server.jobs.submit([Template("echo")], [JobDraft()])).job_ids
    async with (
        raw_wire(guarded.address) as line,
        raw_wire(guarded.address) as worker,
        raw_wire(guarded.address) as kept,
    ):
        await line.open(token=guarded.tokens["admin"])
        await kept.open(token=guarded.tokens["read"])
        line.call(1, methods.SETTLED, methods.OneJob(job_id))
        line.call(2, methods.FEED, methods.FeedStart(None))
        line.call(3, methods.STATS, NOTHING)
        assert [(await line.reply()).id for _ in range(2)] in ([2, 3], [3, 2])
        await worker.open(wire.WORK, guarded.tokens["admin"])
        worker.send(framed(wire.encode(wire.WorkerMessage(Introduction("w", frozenset({"x"}))))))
        assert wire.decode_push(await worker.message()).kind == wire.LAST
        guarded.revoke("admin")
        call_id, failure = await line.failure()
        assert (call_id, failure.code, failure.reason) == (0, "UNAUTHENTICATED", "TOKEN_UNKNOWN")
        assert await line.rest() == b""
        push = wire.decode_push(await worker.message())
        assert push.kind == wire.ERROR
        assert wire.decode_failure(push.body).code == "UNAUTHENTICATED"
        assert await worker.rest() == b""
        kept.call(1, methods.STATS, NOTHING)
        assert (await kept.reply()).kind == wire.LAST


async def test_token_that_expires_ends_its_connection(guarded: Guarded) -> None:
    """A token that expires while its owner is connected ends the connection."""
    token = tokens.create(guarded.path, "short", [Scope.READ], now_ms=1, expires_at_ms=1_000)
    guard = guarded.server.public_server.protection.guard
    guard._clock_ms = lambda: 999
    async with raw_wire(guarded.address) as line:
        assert (await line.open(token=token)).version == wire.VERSION
        guard._clock_ms = lambda: 1_001
        guard.look()
        assert (await line.failure())[1].reason == "TOKEN_EXPIRED"
        assert await line.rest() == b""


async def test_clients_get_the_reason_of_a_revoked_token(guarded: Guarded) -> None:
    """A waiting call, a stream, a call of another thread and a worker's session raise UNAUTHENTICATED."""
    (job_id,) = (await guarded.server.jobs.submit([Template("echo")], [JobDraft()])).job_ids
    endpoint = guarded.endpoint("admin")
    carrier = await WireTransport.connect(endpoint)
    session = await WireWork(endpoint).open(Introduction("w", frozenset({"x"})))
    await session.next()
    near = BlockingClient(endpoint)
    waits = [
        asyncio.ensure_future(carrier.call(methods.SETTLED, methods.OneJob(job_id), None)),
        asyncio.ensure_future(_drained(carrier)),
        asyncio.ensure_future(asyncio.to_thread(near.settled, job_id, None)),
        asyncio.ensure_future(session.next()),
    ]
    while len(guarded.server.public_server._wire._connections) < len(waits):
        await carrier.call(methods.STATS, NOTHING, None)
    guarded.revoke("admin")
    for error in await asyncio.gather(*waits, return_exceptions=True):
        assert isinstance(error, UnauthenticatedError), error
        assert error.reason == "TOKEN_UNKNOWN"
    await session.close()
    await carrier.close()
    near.close()


async def _drained(carrier: WireTransport) -> None:
    async for _ in carrier.stream(methods.FEED, methods.FeedStart(None)):
        pass


@pytest.mark.parametrize("name", ["missing", "wrong", "read", "expired"])
async def test_worker_without_permission_stops(guarded: Guarded, name: str) -> None:
    """A worker whose token is not sufficient ends with the error, and does not try again."""
    with capture_logs() as logs, pytest.raises(HoldfastError) as caught:
        await _worker(guarded, name).run()
    assert caught.value.code in {Code.UNAUTHENTICATED, Code.PERMISSION_DENIED}
    assert len([line for line in logs if line.get("method") == "open"]) == 1


async def test_worker_stops_when_its_token_is_revoked(guarded: Guarded) -> None:
    """A running worker whose token is revoked ends with UNAUTHENTICATED."""
    working = asyncio.ensure_future(_worker(guarded, "work").run())
    while not await guarded.server.admin.workers():
        assert not working.done()
        await asyncio.sleep(0)
    guarded.revoke("work")
    with pytest.raises(UnauthenticatedError, match="the token is unknown"):
        await working


def _worker(guarded: Guarded, name: str) -> Worker:
    async def handle(_: Assignment) -> bytes:
        return b""

    return Worker(WireWork(guarded.endpoint(name)), {"echo": Handler(handle)}, WorkerConfig(worker_id="w"))


async def test_socket_of_the_directory_needs_no_token(guarded: Guarded) -> None:
    """The socket of the directory, which only its owner may open, admits every caller with every scope."""
    reader, writer = await asyncio.open_unix_connection(guarded.path.with_name(SOCKET_NAME))
    line = RawWire(reader, writer)
    assert (await line.open(token="")).version == wire.VERSION
    line.call(1, methods.PURGE, methods.QueuePurge("default"))
    assert (await line.reply()).kind == wire.LAST
    writer.transport.abort()
