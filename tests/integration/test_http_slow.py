"""HTTP clients that are slow or do not read: the server drops them, and other clients are not affected."""

import asyncio
import contextlib
from collections.abc import Iterator

import msgspec
import pytest

from holdfast import limits
from holdfast.core.model import Template
from holdfast.ports import JobDraft
from holdfast.server import descriptors
from holdfast.server.http import event_stream, protocol, server
from holdfast.server.ledger_server import LedgerServer
from tests.integration.conftest import Start
from tests.integration.http_client import Line, connected, get, post, request

JOBS = "/api/v1/jobs"


class Impatient:
    """A server with timeouts that a test can shorten while it is slow on purpose."""

    def __init__(self, running: LedgerServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.running = running
        self.address = running.http_address
        self._monkeypatch = monkeypatch

    @contextlib.contextmanager
    def hurrying(self) -> Iterator[None]:
        """Shortens the timeouts for the duration of a block."""
        with self._monkeypatch.context() as patch:
            for name in ("_HEAD_S", "_BODY_S", "_UNREAD_S"):
                patch.setattr(protocol, name, 0.2)
            yield


@pytest.fixture
async def impatient(start: Start, monkeypatch: pytest.MonkeyPatch) -> Impatient:
    """A server with shortened timeouts on request."""
    monkeypatch.setattr(server, "_SWEEP_S", 0.05)
    return Impatient(await start(no_http=False, http_port=0), monkeypatch)


_POST = b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET /livez",
        b"GET /livez HTTP/1.1\r\nHost: x\r\nX-A: b\r\n",
        _POST + b"Content-Length: 100\r\n\r\n{",
        _POST + b"Transfer-Encoding: chunked\r\n\r\n",
    ],
)
async def test_request_that_does_not_arrive_is_cut_off(impatient: Impatient, begun: bytes) -> None:
    """The server closes a connection on which no complete request arrives in time."""
    said = b""
    with impatient.hurrying():
        async with connected(impatient.address) as line:
            line.writer.write(begun)
            with contextlib.suppress(ConnectionError):  # the server may have closed the connection before the write
                said = await line.end()
    assert not said or said.startswith(b"HTTP/1.1 408 ")
    assert (await get(impatient.address, "/livez")).status == 200


async def test_trickle_does_not_count_as_progress(impatient: Impatient) -> None:
    """A client that sends a byte now and then does not extend the deadline of its request."""
    with impatient.hurrying():
        await _trickle(impatient.address)


async def _trickle(address: str) -> None:
    async with connected(address) as line:
        ended = asyncio.create_task(line.end())
        with contextlib.suppress(ConnectionError):
            line.writer.write(b"GET /livez HTTP/1.1\r\n")
            while not ended.done():
                line.writer.write(b"X")
                await line.writer.drain()
                await asyncio.wait([ended], timeout=0.02)
        with contextlib.suppress(ConnectionError):
            assert (await ended)[:13] in {b"", b"HTTP/1.1 408 "}


async def test_idle_connection_may_wait_between_requests(impatient: Impatient) -> None:
    """A connection may be idle between requests for longer than one request may take."""
    async with connected(impatient.address) as line:
        line.writer.write(request("GET", "/livez"))
        assert (await line.reply()).status == 200
        with impatient.hurrying():
            for _ in range(3):
                await asyncio.sleep(0.5)  # longer than a request may take; only time can show that it stays open
                line.writer.write(request("GET", "/livez"))
                assert (await line.reply()).status == 200


async def test_client_that_does_not_read_is_cut_off(impatient: Impatient) -> None:
    """The server closes the connection of a client that does not read its responses."""
    address = impatient.address
    job_id = (await post(address, JOBS, {"type": "echo", "payload": "x" * 1_000_000})).json["id"]
    async with connected(address) as line:
        line.writer.write(request("GET", "/livez"))
        assert (await line.reply()).status == 200
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]
        with impatient.hurrying():
            line.writer.write(request("GET", f"{JOBS}/{job_id}") * 40)
            await _few(impatient.running, 0)
    assert (await get(address, "/livez")).status == 200


async def test_many_slow_connections_give_way(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit, the server closes connections with incomplete requests in favour of new ones."""
    monkeypatch.setattr(limits, "HTTP_CONNECTIONS_MAX", 20)
    running = await start(no_http=False, http_port=0)
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(100):
            line = await stack.enter_async_context(connected(running.http_address))
            line.writer.write(b"GET /")
            assert (await get(running.http_address, "/livez")).status == 200
        assert len(_connections(running)) <= 20


async def test_connections_leave_descriptors_for_others(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP connections use only a part of the process's file descriptors, so that the journal can open files."""
    monkeypatch.setattr(descriptors, "descriptor_limit", lambda: 80)
    running = await start(no_http=False, http_port=0)
    async with contextlib.AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(connected(running.http_address)) for _ in range(30)]
        assert await lines[0].end() == b""
        assert (await get(running.http_address, "/livez")).status == 200
        assert len(_connections(running)) <= 10


async def test_connections_that_are_all_busy_refuse_another(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """If all connections are busy, a new one gets 503 with Retry-After, and none of the others is closed."""
    monkeypatch.setattr(limits, "HTTP_CONNECTIONS_MAX", 2)
    running = await start(no_http=False, http_port=0)
    async with connected(running.http_address) as one, connected(running.http_address) as two:
        for line in (one, two):
            line.writer.write(request("GET", "/api/v1/events"))
            assert (await _headers(line)).startswith(b"HTTP/1.1 200 ")
        async with connected(running.http_address) as third:
            reply = await third.reply()
            assert (reply.status, reply.reason, reply.headers["retry-after"]) == (503, "TOO_MANY_CONNECTIONS", "1")
        await post_over_grpc(running)
        assert b"submitted" in await _until(one, b"submitted")


async def test_listener_that_does_not_read_is_dropped(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server drops a feed reader that does not read, and other readers receive the events."""
    monkeypatch.setattr(event_stream, "UNSENT_BYTES_MAX", 1_000)
    running = await start(no_http=False, http_port=0)
    async with connected(running.http_address) as deaf, connected(running.http_address) as keen:
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for line in (deaf, keen):
            line.writer.write(request("GET", "/api/v1/events?kind=entries"))
        await _until(keen, b"id: ")
        heard = 0
        while len(_connections(running)) > 1:
            jobs = [{"type": "echo", "labels": {"k": "x" * 1_000}}] * 500
            async with connected(running.http_address) as other:
                other.writer.write(request("POST", JOBS, _json({"jobs": jobs}), {"Content-Type": "application/json"}))
                assert (await other.reply()).status == 202
            heard += (await _until(keen, b"entries")).count(b"job_id")
        assert heard > 0


async def post_over_grpc(running: LedgerServer) -> None:
    """Submits a job over gRPC."""
    await running.jobs.submit([Template("echo")], [JobDraft()])


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)


def _connections(running: LedgerServer) -> list[object]:
    http = running.public_server._http
    assert http is not None
    return list(http._shared.connections)


async def _few(running: LedgerServer, count: int) -> None:
    """Waits until there are at most this many connections."""
    async with asyncio.timeout(30):
        while len(_connections(running)) > count:  # noqa: ASYNC110 - connections have no event for their end
            await asyncio.sleep(0.01)


async def _headers(line: Line) -> bytes:
    async with asyncio.timeout(30):
        return await line.reader.readuntil(b"\r\n\r\n")


async def _until(line: Line, word: bytes) -> bytes:
    """Reads until this word arrives and returns everything read."""
    heard = b""
    async with asyncio.timeout(30):
        while word not in heard:
            part = await line.reader.read(65_536)
            assert part, "the connection ended before the expected bytes"
            heard += part
    return heard
