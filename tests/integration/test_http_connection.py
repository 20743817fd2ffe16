"""One connection: what is said on it, in which order, and how it ends."""

import pytest

from holdfast import limits
from holdfast.gateway.http import protocol
from holdfast.gateway.http import server as http_server
from holdfast.topology.ledger_server import LedgerServer
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
    """Whether nothing more comes."""
    return await line.end() == b""


async def test_body_is_asked_for_by_who_expects_it(server: LedgerServer) -> None:
    """A client that waits for a word gets it, and then its answer."""
    async with connected(server.http_address) as line:
        line.writer.write(request("POST", JOBS, headers=EXPECTING))
        assert (await line.reply()).status == 100
        line.writer.write(JOB)
        assert (await line.reply()).status == 202


async def test_body_of_who_is_refused_is_not_asked_for(server: LedgerServer) -> None:
    """It is told why; and because nobody knows whether its body comes, nothing more is read."""
    async with connected(server.http_address) as line:
        line.writer.write(request("POST", "/nothing", headers=EXPECTING))
        reply = await line.reply()
        assert (reply.status, reply.reason, reply.headers["connection"]) == (404, "PATH_UNKNOWN", "close")
        assert await ended(line)


async def test_expecting_request_that_waits_for_its_turn_is_asked_then(server: LedgerServer) -> None:
    """Words of two answers are never mixed."""
    async with connected(server.http_address) as line:
        line.writer.write(request("POST", JOBS, JOB, JSON) + request("POST", JOBS, headers=EXPECTING))
        assert (await line.reply()).status == 202
        assert (await line.reply()).status == 100
        line.writer.write(JOB)
        assert (await line.reply()).status == 202


async def test_refusal_does_not_wait_for_the_body(server: LedgerServer) -> None:
    """It is there before the body is, of which nothing is kept; what comes after it is answered."""
    async with connected(server.http_address) as line:
        line.writer.write(request("POST", "/nothing", headers={**JSON, "Content-Length": "1000000"}))
        assert (await line.reply()).status == 404
        line.writer.write(bytes(1_000_000) + request("GET", "/livez"))
        assert (await line.reply()).status == 200


async def test_request_before_a_broken_one_is_answered(server: LedgerServer) -> None:
    """Only what cannot be understood is lost, and all that comes after it."""
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
    """Whether the client says so, knows no other way, or wants to speak something else; what comes after it is lost."""
    async with connected(server.http_address) as line:
        line.writer.write(asked + request("GET", "/livez"))
        reply = await line.reply()
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        assert await ended(line)


@pytest.mark.parametrize("target", ["http://127.0.0.1/livez?", "/livez?#part", "/livez#part"])
async def test_target_is_understood_however_it_is_written(server: LedgerServer, target: str) -> None:
    """With the name of the server, and with parts that mean nothing to it."""
    async with connected(server.http_address) as line:
        line.writer.write(request("GET", target))
        assert (await line.reply()).status == 200


async def test_idle_connection_is_closed_without_a_word(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asked for anything, so there is nothing to say."""
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
    """Also where its length was not said before."""
    monkeypatch.setattr(limits, "MESSAGE_BYTES_MAX", 1_000)
    async with connected(server.http_address) as line:
        line.writer.write(request("POST", JOBS, headers={**JSON, "Transfer-Encoding": "chunked"}))
        line.writer.write(b"300\r\n" + bytes(0x300) + b"\r\n" + b"300\r\n" + bytes(0x300) + b"\r\n")
        reply = await line.reply()
        assert (reply.status, reply.reason) == (413, "BODY_TOO_LARGE")
        line.writer.write(b"0\r\n\r\n" + request("GET", "/livez"))
        assert (await line.reply()).status == 200
