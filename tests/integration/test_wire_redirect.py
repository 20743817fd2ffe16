"""The redirect from the gRPC port to the port of the wire: for every client, with TLS, and after restarts."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import grpc
import pytest

from holdfast.client import blocking_transport, endpoints, wire_line
from holdfast.client.access import access_of
from holdfast.client.blocking_transport import BlockingTransport
from holdfast.client.endpoints import TcpEndpoint
from holdfast.client.wire_redirect import NamedPorts, named_ports
from holdfast.client.wire_transport import ReconnectingTransport, WireTransport
from holdfast.client.wire_work import WireWork
from holdfast.errors import UnavailableError
from holdfast.ports import Introduction
from holdfast.server.ledger_server import LedgerServer
from holdfast.wire.methods import NOTHING, STATS
from tests.e2e.fleet import stable_port
from tests.integration.conftest import Start
from tests.integration.made_certificates import Authority

Use = Callable[[TcpEndpoint], Awaitable[None]]


async def call(endpoint: TcpEndpoint) -> None:
    """Makes a call on a new connection."""
    carrier = await WireTransport.connect(endpoint)
    assert (await carrier.call(STATS, NOTHING, None)).epoch > 0
    await carrier.close()


async def call_blocking(endpoint: TcpEndpoint) -> None:
    """Makes a call on a new connection of another thread."""

    def on_thread() -> None:
        carrier = BlockingTransport.connect(endpoint)
        assert carrier.call(STATS, NOTHING, None).epoch > 0
        carrier.drop()

    await asyncio.to_thread(on_thread)


async def work(endpoint: TcpEndpoint) -> None:
    """Opens the session of a worker."""
    session = await WireWork(endpoint).open(Introduction("w", frozenset({"echo"})))
    assert (await session.next()).lease_ms > 0
    await session.close()


EVERY_CLIENT = pytest.mark.parametrize("use", [call, call_blocking, work])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses of the gRPC ports that were asked for the port of the wire."""
    addresses: list[str] = []

    def counted(line: socket.socket, address: str, *, is_secure: bool) -> NamedPorts:
        addresses.append(address)
        return named_ports(line, address, is_secure=is_secure)

    monkeypatch.setattr(endpoints, "named_ports", counted)
    return addresses


@EVERY_CLIENT
async def test_client_with_the_address_of_grpc_is_redirected_once(start: Start, asked: list[str], use: Use) -> None:
    """A client that was given the gRPC address asks it once, and uses the port of the wire from then on."""
    server = await start(no_http=False, http_port=0)
    endpoint = TcpEndpoint(server.address)
    for _ in range(3):
        await use(endpoint)
    assert asked == [server.address]


@EVERY_CLIENT
async def test_client_with_the_address_of_http_is_not_redirected(start: Start, asked: list[str], use: Use) -> None:
    """A client that was given the HTTP address connects there, and asks no other port."""
    server = await start(no_http=False, http_port=0)
    await use(TcpEndpoint(server.http_address))
    assert asked == []


@EVERY_CLIENT
async def test_redirect_uses_tls_where_the_client_does(
    start: Start, asked: list[str], tmp_path: Path, use: Use
) -> None:
    """Over TLS a client is redirected from the gRPC port to the port of the wire, and uses TLS on both."""
    ours = Authority(tmp_path / "ours", "ours")
    certificate, key = ours.sign("server")
    server = await start(tls_cert=certificate, tls_key=key, tls_client_ca=ours.path)
    shown, shown_key = ours.sign("client")
    access = access_of(f"holdfasts://{server.address}?ca={ours.path}&cert={shown}&key={shown_key}")
    for address in (server.address, server.addresses["wire"]):
        await use(TcpEndpoint(address, access))
    assert asked == [server.address]


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


async def restarted(server: LedgerServer, start: Start) -> LedgerServer:
    """The same directory and the same gRPC port, served again with another port of the wire."""
    await server.stop()
    again = await start(port=port_of(server.address), no_http=False, http_port=stable_port())
    assert again.http_address != server.http_address
    return again


@EVERY_CLIENT
async def test_client_finds_the_wire_of_a_restarted_server(start: Start, asked: list[str], use: Use) -> None:
    """A client that was redirected asks again after the server has restarted with another port of the wire."""
    server = await start(port=stable_port(), no_http=False, http_port=stable_port())
    endpoint = TcpEndpoint(server.address)
    await use(endpoint)
    await restarted(server, start)
    await use(endpoint)
    assert asked == [server.address] * 2


async def test_lasting_connection_follows_the_server(start: Start) -> None:
    """A connection that is opened again after a loss finds the server on its new port."""
    server = await start(port=stable_port(), no_http=False, http_port=stable_port())
    carrier = ReconnectingTransport(TcpEndpoint(server.address))
    assert (await carrier.call(STATS, NOTHING, None)).epoch == 1
    await restarted(server, start)
    # The call that meets the end of the first connection fails, if the client has not noticed the end before.
    epochs = await asyncio.gather(*(carrier.call(STATS, NOTHING, None) for _ in range(2)), return_exceptions=True)
    assert isinstance(epochs[0], UnavailableError) or epochs[0].epoch == 2  # type: ignore[union-attr]
    assert (await carrier.call(STATS, NOTHING, None)).epoch == 2
    await carrier.close()


@asynccontextmanager
async def other_program(port: int, answer: bytes, *, is_closing: bool) -> AsyncIterator[str]:
    """Another program on this port: it answers the first bytes of a connection with its own, and may close it then."""
    lines: set[asyncio.StreamWriter] = set()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.add(writer)
        await reader.read(65_536)
        writer.write(answer)
        if is_closing:
            writer.close()

    async with await asyncio.start_server(served, "127.0.0.1", port) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for line in lines:
            line.close()


@contextmanager
def impatience(*, is_needed: bool) -> Iterator[None]:
    """Clients that do not wait long for the answer of a program that never answers."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (wire_line, blocking_transport) if is_needed else ():
            patch.setattr(module, "CONNECT_S", 0.2)
        yield


HTTP_ANSWER = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
#: The answer of another program, whether it closes the connection, and the errors until a client has left it.
OTHER_PROGRAMS = pytest.mark.parametrize(
    ("answer", "is_closing", "errors"), [(HTTP_ANSWER, True, 0), (b"", True, 1), (b"", False, 1)]
)


@EVERY_CLIENT
@OTHER_PROGRAMS
async def test_client_leaves_another_program_on_the_earlier_port(
    start: Start, use: Use, answer: bytes, *, is_closing: bool, errors: int
) -> None:
    """After a restart, a client leaves the earlier port of the wire if another program uses it, and asks again."""
    server = await start(port=stable_port(), no_http=False, http_port=stable_port())
    endpoint = TcpEndpoint(server.address)
    await use(endpoint)
    await restarted(server, start)
    async with other_program(port_of(server.http_address), answer, is_closing=is_closing):
        for _ in range(errors):
            with impatience(is_needed=not is_closing), pytest.raises(UnavailableError):
                await use(endpoint)
        await use(endpoint)


@pytest.mark.parametrize("count", [2, 4])
async def test_threads_that_are_redirected_at_once_all_connect(start: Start, count: int) -> None:
    """Threads that meet the gRPC port at the same time are all redirected, whichever of them asks first."""
    server = await start()
    endpoint = TcpEndpoint(server.address)
    redirect, met, asking = endpoint.redirect, threading.Barrier(count), threading.Lock()

    def after_all_have_met() -> bool:
        met.wait()
        with asking:
            return redirect()

    endpoint.redirect = after_all_have_met  # type: ignore[method-assign]
    await asyncio.gather(*(call_blocking(endpoint) for _ in range(count)))


# -- programs that are no server of the wire


async def message_of(use: Use, address: str) -> str:
    """The message of the one error that a client gets."""
    with pytest.raises(UnavailableError) as caught:
        await use(TcpEndpoint(address))
    return f"{caught.value.reason}: {caught.value.message}"


@EVERY_CLIENT
async def test_server_of_release_0_1_is_named(use: Use, asked: list[str]) -> None:
    """The gRPC port of a server without the wire is asked once, and the error says that the server may be older."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    address = f"127.0.0.1:{port}"
    message = await message_of(use, address)
    assert message.startswith(f"NOT_WIRE: no server answers at {address}: the server does not speak")
    assert "may be older than release 0.2" in message
    assert asked == [address]
    await server.stop(0)


@EVERY_CLIENT
async def test_other_programs_are_no_servers(use: Use) -> None:
    """The error for another program at the address names the address, whatever the program answers."""
    for answer, is_closing, reason in (
        (HTTP_ANSWER, True, "NOT_WIRE"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", False, "NOT_WIRE"),
        (b"\0\0\0\1\x90", True, "NOT_WIRE"),
        (b"\0\0\0\2\xa1\xff", True, "NOT_WIRE"),
        (b"", True, "TLS_FAILED"),
        (b"", False, "UNREACHABLE"),
    ):
        async with other_program(0, answer, is_closing=is_closing) as address:
            with impatience(is_needed=reason == "UNREACHABLE"):
                message = await message_of(use, address)
        assert message.startswith(f"{reason}: "), (answer, message)
        assert address in message


@EVERY_CLIENT
async def test_port_without_a_server_is_named(use: Use) -> None:
    """The error for a port without a server says how to start one."""
    address = f"127.0.0.1:{stable_port()}"
    message = await message_of(use, address)
    assert message.startswith(f"UNREACHABLE: no server answers at {address}: start one with `holdfast up`")
