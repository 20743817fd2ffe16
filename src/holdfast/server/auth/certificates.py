"""TLS certificates of a server, the same for every protocol.

The files are checked every half second. After a change, new connections use the new certificates and open ones
continue. Files that cannot be used change nothing; the failure is logged and counted.
"""

import asyncio
import ssl
from pathlib import Path

import msgspec

from holdfast.errors import FailedPreconditionError, HoldfastError
from holdfast.observe.logs import get_logger
from holdfast.process.private_paths import problem_of_file

_LOOK_S = 0.5
_Seen = tuple[tuple[int, int, int] | None, ...]


class CertificateMaterial(msgspec.Struct, frozen=True):
    """Certificates as PEM for gRPC, and as an SSL context for HTTP."""

    chain: bytes
    key: bytes
    client_ca: bytes
    context: ssl.SSLContext


class Certificates:
    """The certificates in the configured files; with a client CA, clients must present a certificate that it signed.

    The constructor reads the files and raises `FailedPreconditionError` if they cannot be used. `start`, then `stop`.
    """

    def __init__(self, chain: str, key: str, client_ca: str = "") -> None:
        self._paths = (chain, key, client_ca)
        self._looking: asyncio.TimerHandle | None = None
        self._seen = self._signature()
        #: For new connections; replaced as a whole, because gRPC reads it from its own threads.
        self.material = _read(chain, key, client_ca)
        #: Changed files that were loaded, and changed files that could not be used.
        self.reloads = self.failures = 0

    @property
    def asks_clients(self) -> bool:
        """Whether clients must present a certificate."""
        return bool(self._paths[2])

    def start(self) -> None:
        """Starts checking the files for changes."""
        self.stop()
        self._looking = asyncio.get_running_loop().call_later(_LOOK_S, self._look_again)

    def stop(self) -> None:
        """Stops checking."""
        if self._looking is not None:
            self._looking.cancel()

    def _look_again(self) -> None:
        self.look()
        self.start()

    def look(self) -> None:
        """Reloads the files if they have changed."""
        seen = self._signature()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self.material = _read(*self._paths)
        except HoldfastError as error:
            self.failures += 1
            get_logger().error("certificates_unusable", message=f"{error.message}; the previous ones stay in force")
        else:
            self.reloads += 1
            get_logger().info("certificates_read", certificate=self._paths[0])

    def _signature(self) -> _Seen:
        """Returns a value that differs between versions of the files."""
        return tuple(_version(path) for path in self._paths)


def read(chain: str, key: str, client_ca: str = "") -> Certificates | None:
    """Reads these files; None if no chain is named, `FailedPreconditionError` if they cannot be used."""
    return Certificates(chain, key, client_ca) if chain else None


def _read(chain: str, key: str, client_ca: str) -> CertificateMaterial:
    contents = (
        _content("--tls-cert", chain),
        _private_content("--tls-key", key),
        _content("--tls-client-ca", client_ca) if client_ca else b"",
    )
    try:
        return CertificateMaterial(*contents, _context(chain, key, client_ca))
    except (ssl.SSLError, ValueError, OSError) as error:
        raise FailedPreconditionError(
            f"the certificate in {chain!r} and the key in {key!r} cannot be used together"
            f"{f', or the client CA in {client_ca!r} is invalid' if client_ca else ''}:"
            f" {getattr(error, 'reason', '') or error}; expected PEM files, and a key without a password",
            reason="TLS_UNUSABLE",
        ) from error


def _context(chain: str, key: str, client_ca: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(chain, key, password="")
    if client_ca:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _private_content(option: str, path: str) -> bytes:
    """Reads a file that other users may neither read nor change."""
    content = _content(option, path)
    if problem := problem_of_file(Path(path), Path(path).stat()):
        message = f"the key file {path!r} of {option} cannot be used: {problem}"
        raise FailedPreconditionError(message, reason="TLS_UNUSABLE")
    return content


def _content(option: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        message = f"{option} must be a readable file, got {path!r}: {error.strerror or error}"
        raise FailedPreconditionError(message, reason="TLS_UNUSABLE") from error


def _version(path: str) -> tuple[int, int, int] | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
