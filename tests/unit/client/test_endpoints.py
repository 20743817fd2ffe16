"""The endpoints of the wire: redirects by the gRPC port, invalid answers to them, and unreachable addresses."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import grpc
import pytest

from holdfast.client import blocking_transport, wire_line
from holdfast.client.access import Access
from holdfast.client.blocking_transport import BlockingTransport
from holdfast.client.endpoints import TcpEndpoint
from holdfast.client.wire_line import opening_bytes
from holdfast.client.wire_redirect import named_ports
from holdfast.client.wire_transport import WireTransport
from holdfast.errors import InvalidArgumentError, UnavailableError
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import holdfast_pb2_grpc as rpc
from holdfast.wire.messages import CALLS, OPENING_BYTES_MAX


class NamesPort(rpc.WireServiceServicer):
    """A gRPC server that names this port."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def GetPort(self, _: object, __: object) -> pb.WirePort:  # noqa: N802 - the name in the protocol
        return pb.WirePort(port=self.port)


@asynccontextmanager
async def served(*servicers: NamesPort) -> AsyncIterator[int]:
    """A gRPC server, and its port."""
    server = grpc.aio.server()
    for servicer in servicers:
        rpc.add_WireServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


def asked(port: int) -> int:
    with socket.create_connection(("127.0.0.1", port)) as line:
        return named_ports(line, f"127.0.0.1:{port}", is_secure=False).wire


@pytest.mark.parametrize("port", [1, 127, 128, 8_080, 65_535])
async def test_grpc_port_names_the_port_of_the_wire(port: int) -> None:
    """The answer of a gRPC server is decoded, whatever the number of its bytes."""
    async with served(NamesPort(port)) as own:
        assert await asyncio.to_thread(asked, own) == port


@pytest.mark.parametrize("servicers", [[], [NamesPort(0)]], ids=["older", "none"])
async def test_server_that_names_no_port_does_not_speak_the_wire(servicers: list[NamesPort]) -> None:
    """A gRPC server of release 0.1, or one without the wire, is named with its address and port."""
    async with served(*servicers) as own:
        for connect in (WireTransport.connect, connected_in_a_thread):
            with pytest.raises(UnavailableError, match=f"127.0.0.1:{own}: the server does not speak") as caught:
                await connect(TcpEndpoint(f"127.0.0.1:{own}"))
            assert caught.value.reason == "NOT_WIRE"


async def connected_in_a_thread(endpoint: TcpEndpoint) -> BlockingTransport:
    return await asyncio.to_thread(BlockingTransport.connect, endpoint)


async def test_server_that_names_its_own_port_is_not_asked_for_ever() -> None:
    """A server that redirects a client to the port where it already is does not speak the wire."""
    naming = NamesPort(0)
    async with served(naming) as own:
        naming.port = own
        for connect in (WireTransport.connect, connected_in_a_thread):
            with pytest.raises(UnavailableError) as caught:
                await connect(TcpEndpoint(f"127.0.0.1:{own}"))
            assert caught.value.reason == "NOT_WIRE"


async def test_servers_that_redirect_in_a_circle_are_left() -> None:
    """A client that is redirected to a gRPC port again and again gives up."""
    async with served(NamesPort(0)) as other, served(NamesPort(other)) as own:
        for connect in (WireTransport.connect, connected_in_a_thread):
            with pytest.raises(UnavailableError) as caught:
                await connect(TcpEndpoint(f"127.0.0.1:{own}"))
            assert caught.value.reason == "NOT_WIRE"


@contextmanager
def saying(said: bytes) -> Iterator[int]:
    """A server that sends these bytes to one client, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            line, _ = listening.accept()
            with line, suppress(ConnectionError):  # the client has enough
                line.sendall(said)
                line.shutdown(socket.SHUT_WR)
                while line.recv(4_096):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


def frame(kind: int, payload: bytes, *, flags: int = 0, stream: int = 1) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


@pytest.mark.parametrize(
    "said",
    [
        frame(0, b"\x00\x00\x00\x00\x02\x10\x01"),
        frame(0, b"\x00\x00\x00\x00\x05\x08\xff\xff\xff\x7f"),
        frame(0, b"\x00\x00\x00\x00\x00"),
        frame(1, b"", flags=1),
        frame(0, b"", flags=1),
        b"\xff" * 9,
        frame(4, b"", stream=0) * 200,
    ],
    ids=["other-field", "no-port", "empty", "trailers", "no-data", "oversized", "endless"],
)
def test_answer_that_names_no_port_is_none(said: bytes) -> None:
    """An answer without a port, or one that is no HTTP/2, is no redirect."""
    with saying(said) as port:
        assert asked(port) == 0


@pytest.mark.parametrize("said", [b"", b"\x00\x00", frame(0, b"\x00" * 10)[:-1]])
def test_answer_that_breaks_off_is_a_failure_of_the_connection(said: bytes) -> None:
    """An answer that ends too early is a failure of the connection."""
    with saying(said) as port, pytest.raises(OSError, match="closed"):
        asked(port)


async def test_redirected_client_returns_to_its_address_when_the_port_is_gone() -> None:
    """A client whose redirected port is gone connects to the address that it was given, and is redirected again."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        gone = listening.getsockname()[1]
    async with served(NamesPort(gone)) as own:
        endpoint = TcpEndpoint(f"127.0.0.1:{own}")
        assert await asyncio.to_thread(endpoint.redirect)
        line = await asyncio.to_thread(endpoint.connect_blocking)
        assert line.getpeername()[1] == own
        line.close()
        assert await asyncio.to_thread(endpoint.redirect)
        protocol = await endpoint.connect(Connected)
        assert protocol.transport.get_extra_info("peername")[1] == own
        protocol.transport.close()


class Connected(asyncio.Protocol):
    """Keeps its transport."""

    transport: asyncio.BaseTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport


@pytest.mark.parametrize("token", ["x" * OPENING_BYTES_MAX, "\ud800"], ids=["long", "half-a-character"])
def test_token_that_no_server_reads_is_refused_before_it_is_sent(token: str) -> None:
    """A token that is no text, or too long for an opening, is INVALID_ARGUMENT, and the error does not show it."""
    with pytest.raises(InvalidArgumentError) as caught:
        opening_bytes(CALLS, token)
    assert caught.value.reason == "TOKEN_INVALID"
    assert token not in caught.value.message


@pytest.mark.parametrize("access", [Access(is_secure=True, ca=b"x"), Access(is_secure=True, cert=b"x", key=b"x")])
async def test_file_that_is_no_certificate_is_an_invalid_argument(access: Access) -> None:
    """A file for TLS that cannot be used is named, and no call or worker tries to connect again."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = TcpEndpoint(f"127.0.0.1:{listener.getsockname()[1]}", access)
        for attempt in (WireTransport.connect(endpoint), asyncio.to_thread(BlockingTransport.connect, endpoint)):
            with pytest.raises(InvalidArgumentError, match="PEM format") as refused:
                await attempt
            assert refused.value.reason == "URL_INVALID"


async def test_program_that_sends_nothing_is_not_taken_for_a_closed_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error for a port that accepts connections and sends nothing says so; a server need not be started."""
    monkeypatch.setattr(blocking_transport, "CONNECT_S", 0.05)
    monkeypatch.setattr(wire_line, "CONNECT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        for connect in (WireTransport.connect, connected_in_a_thread):
            with pytest.raises(UnavailableError, match=f"{address}: a process accepts connections there") as caught:
                await connect(TcpEndpoint(address))
            assert caught.value.reason == "UNREACHABLE"


async def test_name_without_an_address_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error for a host name that does not exist names it."""

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    for connect in (WireTransport.connect, connected_in_a_thread):
        with pytest.raises(
            UnavailableError, match=r"the name 'nowhere\.invalid' has no address \(Name or service"
        ) as caught:
            await connect(TcpEndpoint("nowhere.invalid:50051"))
        assert caught.value.reason == "UNREACHABLE"
