"""TLS 1.3 over the wire: accepted clients, and the error of each refused one."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from holdfast import limits
from holdfast.client.access import access_of
from holdfast.client.blocking_transport import BlockingTransport
from holdfast.client.endpoints import TcpEndpoint
from holdfast.client.wire_transport import WireTransport
from holdfast.client.wire_work import WireWork
from holdfast.core.model import Template
from holdfast.errors import UnavailableError
from holdfast.ports import Introduction, JobDraft
from holdfast.server.auth import tokens
from holdfast.server.auth.permissions import Scope
from holdfast.server.http import protocol
from holdfast.server.http import server as http_server
from holdfast.server.ledger_server import LedgerServer
from holdfast.wire import messages as wire
from holdfast.wire import methods
from holdfast.wire.frames import framed
from holdfast.wire.methods import NOTHING
from tests.integration.conftest import Start
from tests.integration.made_certificates import Authority
from tests.integration.raw_wire import raw_wire

Use = Callable[[TcpEndpoint], Awaitable[None]]


class Papers:
    """Two authorities and their certificates."""

    def __init__(self, folder: Path) -> None:
        self.ours, self.others = Authority(folder / "ours", "ours"), Authority(folder / "others", "others")
        self.server, self.old_server = self.ours.sign("server"), self.ours.sign("old", is_expired=True)
        self.client, self.foreign = self.ours.sign("client"), self.others.sign("foreign")

    @property
    def trusting(self) -> ssl.SSLContext:
        """The settings of a client that trusts our authority."""
        return ssl.create_default_context(cafile=self.ours.path)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


@pytest.fixture
async def plain(start: Start) -> LedgerServer:
    """A server without TLS."""
    return await start(no_http=False, http_port=0)


@pytest.fixture
async def secure(start: Start, papers: Papers) -> LedgerServer:
    """A server with TLS."""
    certificate, key = papers.server
    return await start(tls_cert=certificate, tls_key=key, no_http=False, http_port=0)


@pytest.fixture
async def strict(start: Start, papers: Papers) -> LedgerServer:
    """A server that requires certificates of its clients."""
    certificate, key = papers.server
    return await start(tls_cert=certificate, tls_key=key, tls_client_ca=papers.ours.path, no_http=False, http_port=0)


async def call(endpoint: TcpEndpoint) -> None:
    """Makes a call on a new connection."""
    carrier = await WireTransport.connect(endpoint)
    assert (await carrier.call(methods.STATS, NOTHING, None)).epoch == 1
    await carrier.close()


async def call_blocking(endpoint: TcpEndpoint) -> None:
    """Makes a call on a new connection of another thread."""

    def on_thread() -> None:
        carrier = BlockingTransport.connect(endpoint)
        assert carrier.call(methods.STATS, NOTHING, None).epoch == 1
        carrier.drop()

    await asyncio.to_thread(on_thread)


async def work(endpoint: TcpEndpoint) -> None:
    """Opens the session of a worker."""
    session = await WireWork(endpoint).open(Introduction("w", frozenset({"echo"})))
    assert (await session.next()).lease_ms > 0
    await session.close()


EVERY_CLIENT = pytest.mark.parametrize("use", [call, call_blocking, work])


def addresses(server: LedgerServer) -> tuple[str, str]:
    """The port of the wire, and the port that redirects to it."""
    return server.http_address, server.address


async def errors(server: LedgerServer, use: Use, url: str) -> list[str]:
    """The errors of a client at both ports; the URL has no address."""
    scheme, _, query = url.partition("?")
    messages = []
    for address in addresses(server):
        endpoint = TcpEndpoint(address, access_of(f"{scheme}://{address}?{query}"))
        with pytest.raises(UnavailableError) as caught:
            await use(endpoint)
        assert caught.value.reason == "TLS_FAILED"
        assert address in caught.value.message
        messages.append(caught.value.message)
    return messages


@EVERY_CLIENT
async def test_clients_that_trust_the_server_connect(secure: LedgerServer, papers: Papers, use: Use) -> None:
    """Clients and workers that trust the server's authority use the wire over TLS, at both ports."""
    for address in addresses(secure):
        await use(TcpEndpoint(address, access_of(f"holdfasts://{address}?ca={papers.ours.path}")))


@EVERY_CLIENT
async def test_certificate_of_another_authority_is_not_trusted(secure: LedgerServer, papers: Papers, use: Use) -> None:
    """The error for a certificate that the client does not trust says why, and how to trust it."""
    for url in ("holdfasts?", f"holdfasts?ca={papers.others.path}"):
        for message in await errors(secure, use, url):
            assert "is not trusted: unable to get local issuer certificate; set ?ca=FILE" in message


@EVERY_CLIENT
async def test_certificate_that_has_expired_is_not_trusted(start: Start, papers: Papers, use: Use) -> None:
    """The error for an expired certificate says so."""
    certificate, key = papers.old_server
    server = await start(tls_cert=certificate, tls_key=key, no_http=False, http_port=0)
    for message in await errors(server, use, f"holdfasts?ca={papers.ours.path}"):
        assert "certificate has expired; renew the certificate of the server" in message


@EVERY_CLIENT
async def test_certificate_for_another_name_is_not_trusted(secure: LedgerServer, papers: Papers, use: Use) -> None:
    """The error for a certificate of another host advises another name, because the authority is not the problem."""
    for address in addresses(secure):
        other = address.replace("127.0.0.1", "127.1")  # the same address, in a form that no certificate has
        with pytest.raises(UnavailableError) as caught:
            await use(TcpEndpoint(other, access_of(f"holdfasts://{other}?ca={papers.ours.path}")))
        assert "certificate is not valid for '127.1'; use a name or address of the cert" in caught.value.message
        assert "?ca=" not in caught.value.message


@EVERY_CLIENT
async def test_plain_client_at_a_port_with_tls_is_told(secure: LedgerServer, use: Use) -> None:
    """The error of a client without TLS at a server with TLS says that the server may require it."""
    for message in await errors(secure, use, "holdfast?"):
        assert "the server may require TLS (holdfasts://)" in message


@EVERY_CLIENT
async def test_client_with_tls_at_a_plain_port_is_told(plain: LedgerServer, papers: Papers, use: Use) -> None:
    """The error of a client with TLS at a server without it says which URL to use."""
    for message in await errors(plain, use, f"holdfasts?ca={papers.ours.path}"):
        assert "does not use TLS; use holdfast:// instead of holdfasts://" in message


@EVERY_CLIENT
async def test_client_certificate_is_required_where_it_is_configured(
    strict: LedgerServer, papers: Papers, use: Use
) -> None:
    """A server with a client authority serves clients with its certificates, and the error of others names them."""
    ca = f"ca={papers.ours.path}"
    for address in addresses(strict):
        shown, key = papers.client
        await use(TcpEndpoint(address, access_of(f"holdfasts://{address}?{ca}&cert={shown}&key={key}")))
    shown, key = papers.foreign
    for url in (f"holdfasts?{ca}", f"holdfasts?{ca}&cert={shown}&key={key}"):
        for message in await errors(strict, use, url):
            assert "may require a client certificate (?cert= and ?key=)" in message


@EVERY_CLIENT
async def test_clients_speak_no_version_before_tls_1_3(papers: Papers, use: Use) -> None:
    """A client does not connect to a server that knows TLS 1.2 only, and the error says that TLS failed."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*papers.server)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(UnavailableError, match=address) as caught:
            await use(TcpEndpoint(address, access_of(f"holdfasts://{address}?ca={papers.ours.path}")))
        assert caught.value.reason == "TLS_FAILED"


async def test_server_refuses_versions_before_tls_1_3(secure: LedgerServer, papers: Papers) -> None:
    """TLS 1.2, which HTTP allows for browsers, is refused on the wire; a client that knows both uses 1.3."""
    async with raw_wire(secure.http_address, papers.trusting) as line:
        assert (await line.open()).version == wire.VERSION
        assert line.writer.get_extra_info("ssl_object").version() == "TLSv1.3"
    context = papers.trusting
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with raw_wire(secure.http_address, context) as line:
        opened = await line.open()
        assert (opened.code, opened.reason) == ("FAILED_PRECONDITION", "TLS_TOO_OLD")
        assert await line.rest() == b""


async def test_tokens_are_checked_after_the_handshake(start: Start, papers: Papers, tmp_path: Path) -> None:
    """Over TLS a refused opening gets its reason before the end, and a second opening after it is not read."""
    token = tokens.create(tmp_path / "data" / tokens.FILE_NAME, "all", [Scope.ADMIN], now_ms=1)
    certificate, key = papers.server
    server = await start(tls_cert=certificate, tls_key=key, no_http=False, http_port=0)
    refused, valid = (
        wire.MAGIC + framed(wire.encode(wire.Opening(1, 1, wire.CALLS, shown))) for shown in ("hf_wrong", token)
    )
    async with raw_wire(server.http_address, papers.trusting) as line:
        line.send(refused)
        line.send(valid)
        opened = wire.decode_opened(await line.message())
        assert (opened.code, opened.reason) == ("UNAUTHENTICATED", "TOKEN_UNKNOWN")
        assert await line.rest() == b""
    async with raw_wire(server.http_address, papers.trusting) as line:
        assert (await line.open(token=token)).version == wire.VERSION
        tokens.revoke(tmp_path / "data" / tokens.FILE_NAME, "all")
        server.public_server.protection.guard.look()
        assert (await line.failure())[1].code == "UNAUTHENTICATED"
        assert await line.rest() == b""
    while server.public_server._wire._connections:  # noqa: ASYNC110 - the end arrives within a few turns of the loop
        await asyncio.sleep(0)


async def test_large_messages_pass_in_both_directions(secure: LedgerServer, papers: Papers) -> None:
    """A batch of the largest size and its payloads pass over TLS."""
    carrier = await WireTransport.connect(
        TcpEndpoint(secure.http_address, access_of(f"holdfasts://{secure.http_address}?ca={papers.ours.path}"))
    )
    payload = bytes(range(256)) * (limits.PAYLOAD_BYTES_MAX // 256)
    drafts = [JobDraft(payload=payload) for _ in range(limits.BATCH_BYTES_MAX // limits.PAYLOAD_BYTES_MAX)]
    submitted = await carrier.call(methods.SUBMIT, methods.Submission([Template("echo")], drafts), None)
    payloads = await asyncio.gather(
        *(carrier.call(methods.PAYLOAD, methods.OneJob(job_id), None) for job_id in submitted.job_ids)
    )
    assert payloads == [payload] * len(drafts)
    await carrier.close()


@pytest.mark.parametrize("begun", [b"", wire.MAGIC, wire.MAGIC + b"\0\0\x10\0"])
async def test_opening_that_never_ends_is_given_up(
    secure: LedgerServer, papers: Papers, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    """After the handshake, a connection whose opening does not arrive is closed like one without TLS."""
    monkeypatch.setattr(protocol, "_HEAD_S", 0.05)
    monkeypatch.setattr(http_server, "_SWEEP_S", 0.02)
    async with raw_wire(secure.http_address, papers.trusting) as line:
        line.send(begun)
        assert await line.rest() == b""
