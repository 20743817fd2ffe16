"""TLS and client certificates over the wire, gRPC and HTTP: which clients connect, and the errors of the others."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from holdfast import limits
from holdfast.client import wire_work
from holdfast.client.access import access_of
from holdfast.core.lifecycle import State
from holdfast.core.model import Template
from holdfast.errors import FailedPreconditionError, HoldfastError
from holdfast.ports import Introduction, JobDraft
from holdfast.server.auth import tokens
from holdfast.server.auth.permissions import Scope
from holdfast.server.http import handshakes
from holdfast.server.ledger_server import LedgerServer
from tests.grpc_v1 import work_session
from tests.integration.conftest import Start
from tests.integration.http_client import Line, connected, request
from tests.integration.made_certificates import Authority
from tests.integration.transports import NETWORKS, REACHED, Hearing, address_of, lasting_remote, work_of

EVERY_WAY = pytest.mark.parametrize("kind", REACHED)


class Papers:
    """Two authorities and their certificates, also as queries of URLs."""

    def __init__(self, folder: Path) -> None:
        self.ours, self.others = Authority(folder / "ours", "ours"), Authority(folder / "others", "others")
        self.server = self.ours.sign("server")
        self.expired = self.ours.sign("expired", is_expired=True)
        self.client, self.old_client = self.ours.sign("client"), self.ours.sign("old-client", is_expired=True)
        self.empty = str(folder / "empty.pem")
        Path(self.empty).touch()
        self.foreign_client = self.others.sign("foreign")


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


async def reason_of(server: LedgerServer, kind: str, scheme: str, query: str = "") -> str:
    """The error of a client; empty if the server answers it."""
    client = lasting_remote(server, kind, access_of(f"{scheme}://{address_of(server, kind)}{query}"), Hearing())
    try:
        await client.stats()
    except HoldfastError as error:
        return error.message
    finally:
        await client.close()
    return ""


@EVERY_WAY
async def test_every_protocol_speaks_tls_and_nothing_else(start: Start, papers: Papers, kind: str) -> None:
    """With TLS, a client that trusts the authority is answered, and others get an error that says what to do."""
    certificate, key = papers.server
    server = await start(tls_cert=certificate, tls_key=key, no_http=False, http_port=0)
    assert await reason_of(server, kind, "holdfasts", f"?ca={papers.ours.path}") == ""
    assert "unable to get local issuer certificate; set ?ca=FILE" in await reason_of(server, kind, "holdfasts")
    wrong = await reason_of(server, kind, "holdfasts", f"?ca={papers.others.path}")
    assert wrong.startswith(f"the certificate of the server at {address_of(server, kind)} is not trusted")
    assert "may require TLS (holdfasts://)" in await reason_of(server, kind, "holdfast")
    trusting = ssl.create_default_context(cafile=papers.ours.path)
    async with tls_line(server, trusting) as line:
        line.writer.write(request("GET", "/api/v1/stats"))
        reply = await line.reply()
        assert reply.status == 200
    with pytest.raises(ssl.SSLCertVerificationError):
        async with tls_line(server, ssl.create_default_context(cafile=papers.others.path)):
            pass
    host, _, port = server.http_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request("GET", "/livez"))
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await reader.readuntil(b"\r\n\r\n")
    writer.transport.abort()


@asynccontextmanager
async def tls_line(server: LedgerServer, context: ssl.SSLContext) -> AsyncIterator[Line]:
    host, _, port = server.http_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        yield Line(reader, writer)
    finally:
        writer.transport.abort()


@EVERY_WAY
async def test_certificate_that_has_run_out_is_named(start: Start, papers: Papers, kind: str) -> None:
    """A client's error for an expired server certificate says so."""
    certificate, key = papers.expired
    server = await start(tls_cert=certificate, tls_key=key)
    assert "certificate has expired" in await reason_of(server, kind, "holdfasts", f"?ca={papers.ours.path}")


@EVERY_WAY
async def test_tls_to_a_server_without_it_is_named(start: Start, papers: Papers, kind: str) -> None:
    """A client that uses TLS with a server without TLS gets an error that says so."""
    server = await start()
    assert "does not use TLS" in await reason_of(server, kind, "holdfasts", f"?ca={papers.ours.path}")


@EVERY_WAY
async def test_clients_show_certificates_where_they_must(start: Start, papers: Papers, kind: str) -> None:
    """A server with a client authority refuses clients without a valid certificate of that authority."""
    certificate, key = papers.server
    server = await start(tls_cert=certificate, tls_key=key, tls_client_ca=papers.ours.path, no_http=False, http_port=0)
    ca = f"?ca={papers.ours.path}"
    good = f"{ca}&cert={papers.client[0]}&key={papers.client[1]}"
    assert await reason_of(server, kind, "holdfasts", good) == ""
    assert "a client certificate" in await reason_of(server, kind, "holdfasts", ca)
    for bad in (papers.foreign_client, papers.old_client):
        assert "a client certificate" in await reason_of(server, kind, "holdfasts", f"{ca}&cert={bad[0]}&key={bad[1]}")
    assert await http_status(server, papers, papers.client) == 200
    for refused in (None, papers.foreign_client, papers.old_client):
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await http_status(server, papers, refused)


async def http_status(server: LedgerServer, papers: Papers, shown: tuple[str, str] | None) -> int:
    context = ssl.create_default_context(cafile=papers.ours.path)
    if shown is not None:
        context.load_cert_chain(*shown)
    async with tls_line(server, context) as line:
        line.writer.write(request("GET", "/livez"))
        return (await line.reply()).status


@EVERY_WAY
async def test_certificates_are_no_tokens(start: Start, papers: Papers, tmp_path: Path, kind: str) -> None:
    """With tokens, a worker and a client need a token beside their certificate."""
    path = tmp_path / "data" / tokens.FILE_NAME
    token = tokens.create(path, "all", [Scope.READ, Scope.WORK], now_ms=1)
    certificate, key = papers.server
    server = await start(tls_cert=certificate, tls_key=key, tls_client_ca=papers.ours.path)
    query = f"?ca={papers.ours.path}&cert={papers.client[0]}&key={papers.client[1]}"
    assert "expected a token" in await reason_of(server, kind, "holdfasts", query)
    access = access_of(f"holdfasts://{token}@{address_of(server, kind)}{query}")
    client = lasting_remote(server, kind, access, Hearing())
    assert (await client.stats()).epoch == 1
    await client.close()
    session = await work_of(server, kind, access).open(Introduction("w", frozenset({"echo"}), frozenset(), 1))
    assert (await session.next()).lease_ms > 0
    await session.close()


@pytest.mark.parametrize("kind", NETWORKS)
async def test_worker_leaves_over_tls(start: Start, papers: Papers, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A worker that closes its session over TLS loses its lease at once, and the server ends the connection."""
    for module in (wire_work, work_session):
        monkeypatch.setattr(module, "_FAREWELL_S", 3_600.0)
    certificate, key = papers.server
    server = await start(tls_cert=certificate, tls_key=key, reconnect_grace_ms=3_600_000, lease_ms=3_600_000)
    (job_id,) = (await server.jobs.submit([Template("brew")], [JobDraft()])).job_ids
    access = access_of(f"holdfasts://{server.address}?ca={papers.ours.path}")
    session = await work_of(server, kind, access).open(Introduction("w", frozenset({"brew"})))
    await session.want(1)
    while not (await session.next()).leases:
        pass
    await session.close()
    async for job in server.jobs.watch(job_id):
        if job.state != State.RUNNING:
            break
    assert job.state == State.QUEUED


@pytest.mark.parametrize("broken", ["missing", "empty", "swapped", "other key", "bad authority"])
async def test_unusable_certificates_are_refused_at_the_start(start: Start, papers: Papers, broken: str) -> None:
    """A server with unusable certificate files does not start, and the error names the files."""
    certificate, key = papers.server
    nothing = papers.empty
    given = {
        "missing": {"tls_cert": "/nowhere/x.pem", "tls_key": key},
        "empty": {"tls_cert": nothing, "tls_key": key},
        "swapped": {"tls_cert": key, "tls_key": certificate},
        "other key": {"tls_cert": certificate, "tls_key": papers.client[1]},
        "bad authority": {"tls_cert": certificate, "tls_key": key, "tls_client_ca": nothing},
    }[broken]
    with pytest.raises(FailedPreconditionError, match=r"\.pem") as caught:
        await start(**given)
    assert caught.value.reason == "TLS_UNUSABLE"


async def test_connections_without_a_handshake_do_not_keep_other_clients_out(
    start: Start, papers: Papers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections without a handshake hold a bounded number of descriptors, and other clients are answered."""
    monkeypatch.setattr(limits, "HTTP_CONNECTIONS_MAX", 2)
    certificate, key = papers.server
    server = await start(tls_cert=certificate, tls_key=key, no_http=False, http_port=0)
    context = ssl.create_default_context(cafile=papers.ours.path)
    async with AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(connected(server.http_address)) for _ in range(3)]
        assert await ended(silent[0])
        async with tls_line(server, context) as line:
            line.writer.write(request("GET", "/livez"))
            assert (await line.reply()).status == 200
        assert await ended(silent[1])


async def test_handshake_that_takes_too_long_is_given_up(
    start: Start, papers: Papers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server closes a connection whose handshake takes too long, or is open when the server stops."""
    monkeypatch.setattr(handshakes, "_TIME_S", 0.1)
    certificate, key = papers.server
    server = await start(tls_cert=certificate, tls_key=key, no_http=False, http_port=0)
    async with connected(server.http_address) as line:
        assert await ended(line)
    monkeypatch.setattr(handshakes, "_TIME_S", 60.0)
    async with connected(server.http_address) as line:
        await server.stop()
        assert await ended(line)


async def ended(line: Line) -> bool:
    """Whether the server has closed the connection without sending anything."""
    try:
        return await line.end() == b""
    except ConnectionResetError:
        return True
