"""One HTTP connection: the order of its messages, and its end."""

import asyncio

import pytest

from holdfast import limits
from holdfast.server.http import protocol
from holdfast.server.http import server as http_server
from holdfast.server.ledger_server import LedgerServer
from tests.integration.conftest import Start
from tests.integration.http_client import Line, connected, request

JOBS = "/api/v1/jobs"
JOB = b'{"type":"echo"}'
JSON = {"Content-Type": "application/json"}
EXPECTING = {**JSON, "Content-Length": str(len(JOB)), "Expect": "100-continue"}


@pytest.fixture
async def server(start: Start) -> LedgerServer:
    """A server with HTTP."""
    return await start(no_http=False, http_port=0)


async def ended(line: Line) -> bool:
    """Whether the connection has ended without further data."""
    return await line.end() == b""


async def test_client_that_expects_100_continue_gets_it(server: LedgerServer) -> None:
    """A client that sends `Expect: 100-continue` gets 100 and then its response."""
    async with connected(server.http_address) as line:
        line.writer.write(request("POST", JOBS, headers=EXPECTING))
        assert (await line.reply()).status == 100
        line.writer.write(JOB)
        assert (await line.reply()).status == 202


async def test_refused_request_gets_its_error_instead_of_100_continue(server: LedgerServer) -> None:
    """A refused request with `Expect: 100-continue` gets its error at once, and the connection is closed."""
    async with connected(server.http_address) as line:
        line.writer.write(request("POST", "/nothing", headers=EXPECTING))
        reply = await line.reply()
        assert (reply.status, reply.reason, reply.headers["connection"]) == (404, "PATH_UNKNOWN", "close")
        assert await ended(line)


async def test_expecting_request_that_waits_for_its_turn_is_asked_then(server: LedgerServer) -> None:
    """A pipelined request with `Expect: 100-continue` gets its 100 after the response before it."""
    async with connected(server.http_address) as line:
        line.writer.write(request("POST", JOBS, JOB, JSON) + request("POST", JOBS, headers=EXPECTING))
        assert (await line.reply()).status == 202
        assert (await line.reply()).status == 100
        line.writer.write(JOB)
        assert (await line.reply()).status == 202


async def test_refusal_does_not_wait_for_the_body(server: LedgerServer) -> None:
    """A refusal is sent before the body has arrived, the body is discarded, and the next request is answered."""
    async with connected(server.http_address) as line:
        line.writer.write(request("POST", "/nothing", headers={**JSON, "Content-Length": "1000000"}))
        assert (await line.reply()).status == 404
        line.writer.write(bytes(1_000_000) + request("GET", "/livez"))
        assert (await line.reply()).status == 200


async def test_request_before_a_broken_one_is_answered(server: LedgerServer) -> None:
    """A request before malformed data is answered, and then the connection is closed."""
    async with connected(server.http_address) as line:
        line.writer.write(request("POST", JOBS, JOB, JSON) + b"\0\0\0\0\r\n\r\n" + request("GET", "/livez"))
        reply = await line.reply()
        assert (reply.status, reply.headers["connection"]) == (202, "close")
        assert await ended(line)


@pytest.mark.parametrize(
    "asked",
    [
        request("GET", "/livez", headers={"Connection": "close"}),
        b"GET /livez HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /livez HTTP/1.0\r\nHost: 127.0.0.1\r\nConnection: keep-alive\r\n\r\n",
        request("GET", "/livez", headers={"Connection": "Upgrade", "Upgrade": "h2c"}),
    ],
)
async def test_last_request_is_answered_and_the_connection_closed(server: LedgerServer, asked: bytes) -> None:
    """The server answers the last request of a connection, ignores what follows, and closes the connection."""
    async with connected(server.http_address) as line:
        line.writer.write(asked + request("GET", "/livez"))
        reply = await line.reply()
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        assert await ended(line)


@pytest.mark.parametrize("target", ["http://127.0.0.1/livez?", "/livez?#part", "/livez#part"])
async def test_target_is_understood_however_it_is_written(server: LedgerServer, target: str) -> None:
    """The server accepts a target in absolute form, with an empty query, or with a fragment."""
    async with connected(server.http_address) as line:
        line.writer.write(request("GET", target))
        assert (await line.reply()).status == 200


async def test_idle_connection_is_closed_without_a_word(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server closes an idle connection without a response."""
    monkeypatch.setattr(protocol, "_IDLE_S", 0.1)
    monkeypatch.setattr(http_server, "_SWEEP_S", 0.05)
    server = await start(no_http=False, http_port=0)
    async with connected(server.http_address) as line:
        line.writer.write(request("GET", "/livez"))
        assert (await line.reply()).status == 200
        assert await ended(line)


async def test_body_that_grows_beyond_its_bound_is_refused(
    server: LedgerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunked body that grows beyond the limit is 413, and the connection stays usable."""
    monkeypatch.setattr(limits, "MESSAGE_BYTES_MAX", 1_000)
    async with connected(server.http_address) as line:
        line.writer.write(request("POST", JOBS, headers={**JSON, "Transfer-Encoding": "chunked"}))
        line.writer.write(b"300\r\n" + bytes(0x300) + b"\r\n" + b"300\r\n" + bytes(0x300) + b"\r\n")
        reply = await line.reply()
        assert (reply.status, reply.reason) == (413, "BODY_TOO_LARGE")
        line.writer.write(b"0\r\n\r\n" + request("GET", "/livez"))
        assert (await line.reply()).status == 200


CHUNKED = {**JSON, "Transfer-Encoding": "chunked"}
CHUNK = b"%x\r\n%b\r\n0\r\n" % (len(JOB), JOB)


async def test_trailers_are_not_used_as_headers(server: LedgerServer) -> None:
    """Trailers after a chunked body are not used as headers."""
    async with connected(server.http_address) as line:
        late = CHUNK + b"Idempotency-Key: late\r\n\r\n"
        line.writer.write((request("POST", JOBS, headers=CHUNKED) + late) * 2)
        assert (await line.reply()).json["id"] != (await line.reply()).json["id"]
        late = CHUNK + b"Content-Type: application/json\r\n\r\n"
        line.writer.write(request("POST", JOBS, headers={"Transfer-Encoding": "chunked"}) + late)
        assert (await line.reply()).status == 415


@pytest.mark.parametrize("path", [JOBS, "/nothing"])
@pytest.mark.parametrize("late", [b"X: y\r\n", b"x"])
async def test_trailers_above_the_limit_are_refused(server: LedgerServer, path: str, late: bytes) -> None:
    """Trailers above the limit are refused and the connection is closed, for accepted and refused requests."""
    async with connected(server.http_address) as line:
        line.writer.write(request("POST", path, headers=CHUNKED) + CHUNK)
        line.writer.write(b"X: " + late * (40 * limits.HTTP_HEAD_BYTES_MAX // len(late)))
        assert (await line.reply()).status == (431 if path == JOBS else 404)
        assert await ended(line)


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("step", [1, 10_000])
async def test_body_of_a_request_that_offers_an_upgrade_is_read(
    server: LedgerServer,
    step: int,
    is_chunked: bool,  # noqa: FBT001
) -> None:
    """The server reads the body of a request that offers an upgrade to HTTP/2, and answers it with HTTP/1.1."""
    framing = {"Transfer-Encoding": "chunked"} if is_chunked else {"Content-Length": str(len(JOB))}
    headers = {**JSON, **framing, "Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c"}
    sent = request("POST", JOBS, headers=headers) + (CHUNK + b"\r\n" if is_chunked else JOB) + request("GET", "/livez")
    async with connected(server.http_address) as line:
        for start in range(0, len(sent), step):
            line.writer.write(sent[start : start + step])
            await line.writer.drain()
        reply = await line.reply()
        assert (reply.status, reply.headers["connection"]) == (202, "close")
        assert await ended(line)


async def test_client_that_says_no_more_is_answered(server: LedgerServer) -> None:
    """A client that half-closes its connection gets the responses to all complete requests."""
    async with connected(server.http_address) as line:
        line.writer.write(request("POST", JOBS, JOB, JSON) * 2 + request("POST", JOBS, JOB, JSON)[:-1])
        line.writer.write_eof()
        assert [(await line.reply()).status for _ in range(2)] == [202, 202]
        assert await ended(line)


async def test_listener_that_says_no_more_has_left(server: LedgerServer) -> None:
    """A feed ends when its client half-closes the connection."""
    async with connected(server.http_address) as line:
        line.writer.write(request("GET", "/api/v1/events"))
        await line.reader.readuntil(b"\r\n\r\n")
        line.writer.write_eof()
        await line.end()


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (b"GET /livez\r\n\r\n", 505),
        (b"GET /livez HTTP/2.0\r\nHost: 127.0.0.1\r\n\r\n", 505),
        (request("POST", JOBS, headers={**JSON, "Transfer-Encoding": "gzip, chunked"}) + CHUNK + b"\r\n", 501),
    ],
)
async def test_unsupported_http_version_or_transfer_coding_is_refused(
    server: LedgerServer, asked: bytes, status: int
) -> None:
    """The server refuses an unsupported HTTP version or transfer coding, and closes the connection."""
    async with connected(server.http_address) as line:
        line.writer.write(asked)
        assert (await line.reply()).status == status
        assert await ended(line)


async def test_request_that_had_to_wait_may_arrive_afterwards(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The timeout of a pipelined request does not run while the server answers the requests before it."""
    monkeypatch.setattr(http_server, "_SWEEP_S", 0.05)
    server = await start(no_http=False, http_port=0)
    async with connected(server.http_address) as line:
        line.writer.write(request("POST", JOBS, JOB, JSON))
        job_id = (await line.reply()).json["id"]
        monkeypatch.setattr(protocol, "_HEAD_S", 0.3)
        wait = request("GET", f"{JOBS}/{job_id}/result?wait_s=1")
        line.writer.write(wait + request("GET", "/livez") + b"GET /livez HTTP/1.1\r\n")
        await line.writer.drain()
        line.writer.write(b"Host: 127.0.0.1\r\n\r\n")
        assert [(await line.reply()).status for _ in range(3)] == [200, 200, 200]


async def test_wait_ends_when_its_client_disconnects(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait for a result ends when its client has closed the connection."""
    monkeypatch.setattr(protocol, "_UNREAD_S", 0.1)  # the time for which the client may still be there
    monkeypatch.setattr(http_server, "_SWEEP_S", 0.05)
    server = await start(no_http=False, http_port=0)
    async with connected(server.http_address) as line:
        line.writer.write(request("POST", JOBS, JOB, JSON))
        job_id = (await line.reply()).json["id"]
        line.writer.write(request("GET", f"{JOBS}/{job_id}/result?wait_s=60"))
        await answering(1)
    await answering(0)


async def answering(count: int) -> None:
    """Waits until this number of requests is being answered."""
    async with asyncio.timeout(30):
        while sum("Connection._answer" in repr(task) for task in asyncio.all_tasks()) != count:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
