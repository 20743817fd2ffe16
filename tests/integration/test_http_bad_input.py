"""Invalid requests: each gets a problem document or is dropped, and the journal does not change."""

from pathlib import Path

import pytest

from holdfast import limits
from holdfast.server.ledger_server import LedgerServer
from tests.integration.conftest import Start
from tests.integration.http_client import ask, connected, get, post, request

JOBS = "/api/v1/jobs"
KIND = {"Content-Type": "application/json"}


@pytest.fixture
async def server(start: Start) -> LedgerServer:
    """A server with one job in its journal."""
    server = await start(no_http=False, http_port=0)
    assert (await post(server.http_address, JOBS, {"type": "echo"})).status == 202
    return server


def journal(tmp_path: Path) -> dict[str, bytes]:
    """The content of every file of the journal."""
    return {path.name: path.read_bytes() for path in sorted((tmp_path / "data").iterdir()) if path.is_file()}


BODIES = {
    "nothing": b"",
    "no JSON": b"hello",
    "an array": b"[]",
    "text": b'"echo"',
    "no type": b"{}",
    "cut off": b'{"type":"echo"',
    "more after it": b'{"type":"echo"} x',
    "twice": b'{"type":"echo"}{"type":"echo"}',
    "a name twice": b'{"type":"echo","type":"echo"}',
    "a name twice inside": b'{"type":"echo","payload":{"a":1,"a":2}}',
    "NaN": b'{"type":"echo","payload":NaN}',
    "infinity": b'{"type":"echo","payload":[-Infinity]}',
    "half a pair": b'{"type":"echo","payload":"\\ud800"}',
    "too deep": b'{"type":"echo","payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "digits": b'{"type":"echo","payload":' + b"1" * 4_301 + b"}",
    "no UTF-8": b'{"type":"echo","payload":"\xff"}',
    "a mark": b'\xef\xbb\xbf{"type":"echo"}',
    "NUL": b'{"type":"ec\\u0000ho"}',
    "a path": b'{"type":"../../etc/passwd"}',
    "markup": b'{"type":"<script>"}',
    "line break": b'{"type":"echo\\r\\nX-A: b"}',
    "right to left": '{"queue":"\u202eabc","type":"echo"}'.encode(),
    "unknown": b'{"type":"echo","prioritty":1}',
    "wrong type": b'{"type":"echo","priority":"1"}',
    "a fraction": b'{"type":"echo","priority":1.5}',
    "beyond": b'{"type":"echo","priority":10}',
    "below": b'{"type":"echo","delay_s":-1}',
    "far": b'{"type":"echo","delay_s":1e300}',
    "no instant": b'{"type":"echo","not_before":"tomorrow"}',
    "no offset": b'{"type":"echo","not_before":"2030-01-01T00:00:00"}',
    "no jobs": b'{"jobs":[]}',
    "too many jobs": b'{"jobs":[' + b",".join([b'{"type":"echo"}'] * (limits.BATCH_JOBS_MAX + 1)) + b"]}",
    "long key": b'{"type":"echo","unique_key":"' + b"x" * 257 + b'"}',
    "labels": b'{"type":"echo","labels":{"a":1}}',
    "null": b'{"type":null}',
}


@pytest.mark.parametrize("case", BODIES)
async def test_bad_body_is_a_400_that_changes_nothing(server: LedgerServer, tmp_path: Path, case: str) -> None:
    """An invalid body is 400 with a problem, and no byte of the journal changes."""
    before = journal(tmp_path)
    reply = await post(server.http_address, JOBS, BODIES[case])
    assert (reply.status, bool(reply.reason)) == (400, True)
    assert journal(tmp_path) == before


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/json; charset=utf-16"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {"Content-Type": ""},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ],
)
async def test_body_of_another_kind_is_415(server: LedgerServer, tmp_path: Path, headers: dict[str, str]) -> None:
    """A body that is not declared as JSON, such as a form of another site, is 415."""
    before = journal(tmp_path)
    reply = await ask(server.http_address, "POST", JOBS, b'{"type":"echo"}', headers)
    assert (reply.status, bool(reply.reason)) == (415, True)
    assert journal(tmp_path) == before


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_body_over_the_limit_is_413(server: LedgerServer, tmp_path: Path, is_chunked: bool) -> None:  # noqa: FBT001
    """A body above the limit is 413, with or without a declared length, and the connection stays usable."""
    before = journal(tmp_path)
    size = limits.MESSAGE_BYTES_MAX + 1
    async with connected(server.http_address) as line:
        if is_chunked:
            head = request("POST", JOBS, None, {**KIND, "Transfer-Encoding": "chunked"})
            line.writer.write(head + b"%x\r\n" % size + b" " * size + b"\r\n0\r\n\r\n")
        else:
            line.writer.write(request("POST", JOBS, b" " * size, KIND))
        reply = await line.reply()
        assert (reply.status, reply.reason) == (413, "BODY_TOO_LARGE")
        line.writer.write(request("GET", "/livez"))
        assert (await line.reply()).body == b"alive\n"
    assert journal(tmp_path) == before


@pytest.mark.parametrize("size", [limits.PAYLOAD_BYTES_MAX - 1, limits.PAYLOAD_BYTES_MAX, limits.PAYLOAD_BYTES_MAX + 1])
async def test_payload_at_its_limit(server: LedgerServer, size: int) -> None:
    """A payload of exactly the limit, counted as JSON, is accepted, and one byte more is 400."""
    reply = await post(server.http_address, JOBS, {"type": "echo", "payload": "x" * (size - 2)})
    assert reply.status == (202 if size <= limits.PAYLOAD_BYTES_MAX else 400)


RAW = {
    "no HTTP": b"hello\r\n\r\n",
    "binary": bytes(range(256)) * 4,
    "another version": b"GET / HTTP/9.9\r\n\r\n",
    "two lengths": b"POST /api/v1/jobs HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "length and chunks": b"POST /api/v1/jobs HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    "negative length": b"POST /api/v1/jobs HTTP/1.1\r\nContent-Length: -1\r\n\r\n{}",
    "bad chunk": b"POST /api/v1/jobs HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "folded header": b"GET /livez HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
    "space before colon": b"GET /livez HTTP/1.1\r\nHost : x\r\n\r\n",
    "NUL in a header": b"GET /livez HTTP/1.1\r\nA: \x00\r\n\r\n",
    "bytes in the path": b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.mark.parametrize("case", RAW)
async def test_bytes_that_are_not_http_end_the_connection(server: LedgerServer, tmp_path: Path, case: str) -> None:
    """The server answers bytes that are not HTTP with 400 or closes the connection, and continues to serve."""
    before = journal(tmp_path)
    async with connected(server.http_address) as line:
        line.writer.write(RAW[case])
        line.writer.write_eof()
        said = await line.end()
    assert not said or said.startswith(b"HTTP/1.1 400 ")
    assert (await get(server.http_address, "/livez")).status == 200
    assert journal(tmp_path) == before


async def test_head_over_the_limit_is_431(server: LedgerServer) -> None:
    """A head above the limit, in one header or in many, is 431."""
    for pieces in (1, 50):
        async with connected(server.http_address) as line:
            line.writer.write(b"GET /livez HTTP/1.1\r\n")
            for n in range(pieces):
                line.writer.write(b"X-%d: " % n + b"x" * (2 * limits.HTTP_HEAD_BYTES_MAX // pieces) + b"\r\n")
            reply = await line.reply()
            assert (reply.status, reply.reason) == (431, "REQUEST_HEADER_FIELDS_TOO_LARGE")
            assert await line.end() == b""


async def test_url_over_the_limit_is_414(server: LedgerServer) -> None:
    """A URL above the limit is 414."""
    async with connected(server.http_address) as line:
        line.writer.write(request("GET", "/livez?" + "x" * limits.URL_BYTES_MAX))
        assert (await line.reply()).reason == "REQUEST_URI_TOO_LONG"


async def test_body_where_none_belongs_is_not_read_as_a_request(server: LedgerServer) -> None:
    """The server skips the body of a GET, so that the next request is read correctly."""
    async with connected(server.http_address) as line:
        line.writer.write(request("GET", "/livez", b"GET /nothing HTTP/1.1\r\n\r\n") + request("GET", "/readyz"))
        assert [(await line.reply()).body for _ in range(2)] == [b"alive\n", b"ready\n"]
