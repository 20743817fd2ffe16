"""The places where a client opens connections of the wire: the socket of a directory, or a TCP port of a server.

An address may be that of the server's gRPC port, which older clients and other languages use: the endpoint then asks it
once for the port of the wire, and connects there from now on.
"""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from holdfast.client.access import NO_CREDENTIALS, Access
from holdfast.client.wire_redirect import named_ports
from holdfast.errors import InvalidArgumentError, UnavailableError
from holdfast.wire.keepalive import keep_alive
from holdfast.wire.messages import NO_SHARD

P = TypeVar("P", bound=asyncio.BaseProtocol)

CONNECT_S = 5.0
#: How often one attempt to connect is redirected: once, and once more if an earlier redirect leads nowhere.
REDIRECTS_MAX = 2
#: How often one attempt to connect goes on to the leader that another node of a cluster has named.
FOLLOWS_MAX = 3
_ALPN = ["holdfast/1", "h2"]
_SILENT = "a process accepts connections there, but sends nothing; it may be another program, or a server that hangs"
_OTHER_NAME = "use a name or address of the certificate in the URL, or a certificate for this one on the server"
#: What to do about a certificate that another authority would not help, by OpenSSL's number of the problem: it is not
#: valid yet, has expired, or was issued for another host or address.
_REMEDIES = {
    9: "check the clock of this machine and the certificate",
    10: "renew the certificate of the server",
    62: _OTHER_NAME,
    64: _OTHER_NAME,
}


class Endpoint(Protocol):
    """One place."""

    @property
    def token(self) -> str:
        """The token for the opening."""
        ...

    @property
    def shard(self) -> int:
        """The shard of a cluster for the opening; NO_SHARD if there is no cluster, or any node will do."""
        ...

    @property
    def missed_port(self) -> int:
        """The port that the server has named, if it could not be reached; otherwise 0."""
        ...

    async def connect(self, made: Callable[[], P]) -> P:
        """Opens a connection with this protocol; `UnavailableError` (UNREACHABLE) if no server listens."""
        ...

    def connect_blocking(self) -> socket.socket:
        """Opens a connection on the caller's thread, with the same errors."""
        ...

    def redirect(self) -> bool:
        """Follows a server that does not speak the wire on this port; False if it names no other one. Blocks."""
        ...

    def follow(self, leader: str) -> bool:
        """Handles a node that does not lead the shard or does not answer; False if the next would do the same.

        `leader` is the address that the node has named; "" if it has named none.
        """
        ...

    def unreachable(self, why: str) -> UnavailableError:
        """Returns the error if no server answers."""
        ...


class UnixEndpoint:
    """The socket of a directory.

    Connections go through the open directory, because the path of a socket is limited to 107 bytes.
    """

    token = ""
    shard = NO_SHARD
    missed_port = 0

    def __init__(self, path: Path) -> None:
        self._path = path

    async def connect(self, made: Callable[[], P]) -> P:
        """Connects to the socket."""
        loop = asyncio.get_running_loop()
        try:
            folder = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
            try:
                _, line = await loop.create_unix_connection(made, f"/proc/self/fd/{folder}/{self._path.name}")
            finally:
                os.close(folder)
        except OSError as error:
            raise self.unreachable(error.strerror or str(error)) from error
        return line

    def connect_blocking(self) -> socket.socket:
        """Connects to the socket."""
        line = socket.socket(socket.AF_UNIX)
        try:
            folder = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
            try:
                line.connect(f"/proc/self/fd/{folder}/{self._path.name}")
            finally:
                os.close(folder)
        except OSError as error:
            line.close()
            raise self.unreachable(error.strerror or str(error)) from error
        return line

    def redirect(self) -> bool:
        """Returns False: a directory has one socket."""
        return False

    def follow(self, leader: str) -> bool:
        """Returns False: a directory has no shards."""
        del leader
        return False

    def unreachable(self, why: str) -> UnavailableError:
        """Returns the error for a socket without a server."""
        return UnavailableError(f"no server is running for {str(self._path.parent)!r}: {why}", reason="UNREACHABLE")


class TcpEndpoint:
    """A server's `host:port`, with TLS if the access settings say so."""

    shard = NO_SHARD

    def __init__(self, address: str, access: Access = NO_CREDENTIALS, *, advice: str = "") -> None:
        """`advice` is the part of the error message that says what to do if no server answers."""
        self.address = address
        self.token = access.token
        host, _, port = address.rpartition(":")
        self._host = host.strip("[]")
        self._given_port = self._port = int(port)
        self.missed_port = 0
        self._access = access
        self._advice = advice or "start one with `holdfast up`, or use another address"
        self._context: ssl.SSLContext | None = None

    async def connect(self, made: Callable[[], P]) -> P:
        """Connects to the port; after a failure at a port that the server had named, to the given one."""
        loop = asyncio.get_running_loop()
        context = self._tls()
        try:
            try:
                async with asyncio.timeout(CONNECT_S):
                    transport, line = await loop.create_connection(
                        made, self._host, self._port, ssl=context, server_hostname=self._host if context else None
                    )
            except OSError:
                if self._port == self._given_port:
                    raise
                self.missed_port, self._port = self._port, self._given_port
                return await self.connect(made)
        except OSError as error:
            raise self._explained(error) from error
        with contextlib.suppress(OSError, AttributeError):
            keep_alive(transport.get_extra_info("socket"))
        return line

    def connect_blocking(self) -> socket.socket:
        """Connects to the port, as `connect` does."""
        try:
            try:
                return self._connected(self._port)
            except OSError:
                if self._port == self._given_port:
                    raise
                self.missed_port, self._port = self._port, self._given_port
                return self._connected(self._port)
        except OSError as error:
            raise self._explained(error) from error

    def redirect(self) -> bool:
        """Asks the gRPC port of the server for the port of the wire.

        It is asked again after a redirect: another thread may have asked meanwhile, and a restarted server may have
        another port, while another program uses the earlier one. If it names none, the given port is tried again.
        """
        was_redirected, self._port = self._port != self._given_port, self._given_port
        with contextlib.suppress(OSError):
            line = self._connected(self._given_port)
            try:
                ports = named_ports(line, self.address, is_secure=self._access.is_secure)
            finally:
                line.close()
            if ports.grpc and ports.grpc != self._given_port:
                raise UnavailableError(
                    f"{self.address} leads to the gRPC port {ports.grpc} of a server through a proxy or a port mapping;"
                    f" Holdfast's own clients need a way to its port {ports.wire} instead, and that address",
                    reason="PORT_MAPPED",
                )
            if ports.wire and ports.wire != self._given_port:
                self._port = ports.wire
                return True
        return was_redirected

    def follow(self, leader: str) -> bool:
        """Returns False: the address is that of one server."""
        del leader
        return False

    def unreachable(self, why: str) -> UnavailableError:
        """Returns the error if no server answers."""
        del why
        return self._unanswered(self._advice)

    def closed(self, error: BaseException | None) -> UnavailableError:
        """Returns the error if the server does not answer an opening, and forgets a redirect to that port."""
        self._port = self._given_port
        if isinstance(error, TimeoutError):
            return self._unanswered(_SILENT)
        problem = _tls_problem(error, self.address) if isinstance(error, OSError) else ""
        if not problem:
            tls = "" if self._access.is_secure else "TLS (holdfasts://), or "
            problem = (
                f"{self.address} closes new connections at once: the server may require {tls}a client certificate"
                " (?cert= and ?key=)"
            )
        return UnavailableError(problem, reason="TLS_FAILED")

    def _unanswered(self, advice: str) -> UnavailableError:
        return UnavailableError(f"no server answers at {self.address}: {advice}", reason="UNREACHABLE")

    def _connected(self, port: int) -> socket.socket:
        line = socket.create_connection((self._host, port), CONNECT_S)
        try:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(line)
            context = self._tls()
            return context.wrap_socket(line, server_hostname=self._host) if context is not None else line
        except BaseException:
            line.close()
            raise

    def _tls(self) -> ssl.SSLContext | None:
        if self._access.is_secure and self._context is None:
            self._context = _context(self._access)
        return self._context

    def _explained(self, error: OSError) -> UnavailableError:
        """Returns an error that says what to do, for TLS or without a server."""
        if isinstance(error, socket.gaierror):
            why = error.strerror or str(error)
            return self._unanswered(f"the name {self._host!r} has no address ({why}); check its spelling")
        problem = _tls_problem(error, self.address)
        if self._access.is_secure and isinstance(error, ConnectionResetError | ConnectionAbortedError):
            return self.closed(error)  # during the handshake
        return UnavailableError(problem, reason="TLS_FAILED") if problem else self.unreachable(str(error))


def closed_early(endpoint: Endpoint, error: BaseException) -> UnavailableError:
    """Returns the error if the server does not answer an opening; over TCP the reason may be TLS."""
    if isinstance(endpoint, TcpEndpoint):
        return endpoint.closed(error)
    return endpoint.unreachable(f"{error}; the program that serves it may be older than release 0.2")


def _context(access: Access) -> ssl.SSLContext:
    """Returns the TLS settings of a client: version 1.3, and the server's name is checked."""
    with _explained_files("?ca= must be a file with certificates in PEM format"):
        context = ssl.create_default_context(cadata=access.ca.decode("ascii", "replace") if access.ca else None)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(_ALPN)
    if access.cert:
        # The module reads files only; a file in memory is never on the disk.
        with (
            _explained_files("?cert= and ?key= must be a certificate and its key in PEM format"),
            _file(access.cert) as cert,
            _file(access.key) as key,
        ):
            context.load_cert_chain(cert, key)
    return context


@contextlib.contextmanager
def _explained_files(rule: str) -> Iterator[None]:
    """Raises `InvalidArgumentError` if the TLS library does not accept a file: no attempt can succeed."""
    try:
        yield
    except ssl.SSLError as error:
        raise InvalidArgumentError(f"{rule}: {error.reason or error}", reason="URL_INVALID") from error


@contextlib.contextmanager
def _file(content: bytes) -> Iterator[str]:
    file = os.memfd_create("holdfast")
    try:
        os.write(file, content)
        yield f"/proc/self/fd/{file}"
    finally:
        os.close(file)


def _tls_problem(error: OSError, address: str) -> str:
    """Explains why TLS with the server failed; empty if TLS was not the problem."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = (error.verify_message or str(error)).rstrip(".")
        remedy = _REMEDIES.get(error.verify_code, "set ?ca=FILE to its CA certificate")
        return f"the certificate of the server at {address} is not trusted: {why}; {remedy}"
    if isinstance(error, ssl.SSLError):
        if error.reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"}:
            return f"the server at {address} does not use TLS; use holdfast:// instead of holdfasts://"
        return (
            f"TLS with the server at {address} failed ({error.reason or error}); it may require a client certificate"
            " (?cert= and ?key=)"
        )
    return ""
