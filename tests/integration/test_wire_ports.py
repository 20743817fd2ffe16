"""The ports of the wire: during recovery, beside HTTP, and without HTTP."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.endpoints import TcpEndpoint, UnixEndpoint
from holdfast.client.wire_transport import WireTransport
from holdfast.journal.os_disk import OsDisk
from holdfast.server.auth import tokens
from holdfast.server.auth.permissions import Scope
from holdfast.server.ledger_server import LedgerServer
from holdfast.settings import Settings
from holdfast.wire import messages as wire
from holdfast.wire import methods
from holdfast.wire.methods import NOTHING
from holdfast_lab.faults.stalling_disk import Gate, StallingDisk
from tests.e2e.fleet import clean_environment
from tests.integration.conftest import Start
from tests.integration.http_client import ask
from tests.integration.raw_wire import raw_wire, wire_address

# -- recovery


@asynccontextmanager
async def recovering(data: Path, *, no_http: bool = False) -> AsyncIterator[LedgerServer]:
    """A server with open ports whose recovery waits until the block ends; then it serves."""
    gate = Gate()
    settings = Settings(data=str(data), port=0, http_port=0, no_http=no_http, log_level="error")
    server = LedgerServer(settings, log_stream=BytesIO(), open_disk=lambda path: StallingDisk(OsDisk(path), gate))
    with gate.shut():
        start = asyncio.create_task(server.start())
        await asyncio.to_thread(gate.is_met.wait)
        while not server.addresses:  # noqa: ASYNC110 - the ports open within a few turns of the loop
            await asyncio.sleep(0)
        yield server
        assert not start.done()
    await start


@pytest.mark.parametrize("no_http", [False, True])
@pytest.mark.parametrize("purpose", [wire.CALLS, wire.WORK])
async def test_server_that_recovers_refuses_the_wire_with_its_progress(
    tmp_path: Path, purpose: str, *, no_http: bool
) -> None:
    """During recovery an opening gets UNAVAILABLE with the progress, and the end; afterwards it is admitted."""
    async with recovering(tmp_path / "data", no_http=no_http) as server:
        address = wire_address(server)
        async with raw_wire(address) as line:
            opened = await line.open(purpose)
            assert (opened.version, opened.code, opened.reason) == (0, "UNAVAILABLE", "SERVER_STARTING")
            assert "the server is starting: reading the snapshot" in opened.message
            assert await line.rest() == b""
    assert wire_address(server) == address
    async with raw_wire(address) as line:
        assert (await line.open(purpose)).version == wire.VERSION
    await server.stop()


async def test_tokens_are_needed_as_soon_as_the_server_serves(tmp_path: Path) -> None:
    """While a server with tokens recovers, every opening gets SERVER_STARTING; tokens are checked afterwards."""
    path = tmp_path / "data" / tokens.FILE_NAME
    token = tokens.create(path, "all", [Scope.ADMIN], now_ms=1)
    async with recovering(tmp_path / "data") as server:
        async with raw_wire(server.http_address) as line:
            assert (await line.open()).reason == "SERVER_STARTING"
        half = raw_wire(server.http_address)
        begun = await half.__aenter__()
        begun.send(wire.MAGIC)
    assert await begun.rest() == b""  # its opening had begun at the server that recovers
    await half.__aexit__(None, None, None)
    for shown, reason in (("", "TOKEN_MISSING"), (token, "")):
        async with raw_wire(server.http_address) as line:
            assert (await line.open(token=shown)).reason == reason
    await server.stop()


# -- with HTTP and without it


async def test_http_and_the_wire_share_a_port(start: Start) -> None:
    """The port of HTTP serves the wire to connections that begin with its first byte, and HTTP to others."""
    server = await start(no_http=False, http_port=0)
    assert "wire" not in server.addresses
    async with raw_wire(server.http_address) as line:
        assert (await line.open()).version == wire.VERSION
        assert (await ask(server.http_address, "GET", "/livez")).status == 200
        line.call(1, methods.STATS, NOTHING)
        assert (await line.reply()).kind == wire.LAST


@pytest.mark.parametrize("first", [b"C", b"W", b"\x16\x03\x01", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x01HFW"])
async def test_other_first_bytes_are_http(start: Start, first: bytes) -> None:
    """A connection with another first byte is answered as HTTP, with a problem, and never admitted to the wire."""
    server = await start(no_http=False, http_port=0)
    async with raw_wire(server.http_address) as line:
        line.send(first + b"\r\n\r\n")
        assert (await line.rest()).startswith(b"HTTP/1.1 400 ")
    assert not server.public_server._wire._connections


@pytest.mark.parametrize("given", [b"\0", b"\0HF", b"\0HFX\0\0\0\1\x90", b"\0\0\0\0\0\0"])
async def test_first_byte_without_the_rest_is_no_wire(start: Start, given: bytes) -> None:
    """Only the four bytes of the wire begin an opening; a connection that differs later is closed without an answer."""
    server = await start(no_http=False, http_port=0)
    async with raw_wire(server.http_address) as line:
        line.send(given)
        line.writer.write_eof()
        assert await line.rest() == b""
    assert not server.public_server._wire._connections


async def test_server_without_http_answers_with_a_problem(start: Start) -> None:
    """With --no-http the port of the wire answers every HTTP request with a 404 problem that says why."""
    server = await start(no_http=True)
    assert server.addresses.keys() == {"grpc", "wire"}
    for method, path in (("GET", "/"), ("GET", "/livez"), ("GET", "/api/v1/stats"), ("POST", "/api/v1/jobs")):
        reply = await ask(server.addresses["wire"], method, path)
        assert (reply.status, reply.reason) == (404, "PATH_UNKNOWN")
        assert "--no-http" in reply.json["detail"]
    async with raw_wire(server.addresses["wire"]) as line:
        assert (await line.open()).version == wire.VERSION


# -- as a process


@contextmanager
def program(*arguments: str) -> Iterator[dict[str, Any]]:
    """A server as a separate process; yields its ready line."""
    command = [sys.executable, "-m", "holdfast", "server", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=clean_environment({})
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()


async def test_ready_line_names_the_port_of_the_wire(tmp_path: Path) -> None:
    """The ready line of a server without HTTP names the port of the wire, which serves clients at once."""
    data = tmp_path / "data"
    with program("--data", str(data), "--port", "0", "--no-http") as ready:
        assert ready["event"] == "ready"
        assert "http" not in ready
        for endpoint in (TcpEndpoint(ready["wire"]), TcpEndpoint(ready["grpc"]), UnixEndpoint(data / "holdfast.sock")):
            carrier = await WireTransport.connect(endpoint)
            assert (await carrier.call(methods.STATS, NOTHING, None)).epoch == 1
            await carrier.close()
        reply = await ask(ready["wire"], "GET", "/livez")
        assert (reply.status, reply.headers["content-type"]) == (404, "application/problem+json")


async def test_ready_line_with_http_names_no_other_port(tmp_path: Path) -> None:
    """With HTTP the ready line names the ports of gRPC and HTTP, and both lead to the wire."""
    with program("--data", str(tmp_path / "data"), "--port", "0", "--http-port", "0") as ready:
        assert "wire" not in ready
        for address in (ready["grpc"], ready["http"]):
            carrier = await WireTransport.connect(TcpEndpoint(address))
            assert (await carrier.call(methods.STATS, NOTHING, None)).epoch == 1
            await carrier.close()
