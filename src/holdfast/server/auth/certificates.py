"""What a server shows of itself over TLS, and whose certificates it wants to see: the same for every protocol.

The files are looked at again every half second: once they have changed, new connections get the new certificates, and
those that are open go on. Files that cannot be used change nothing; they are logged and counted.
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


class Material(msgspec.Struct, frozen=True):
    """As PEM, and as a context for sockets of our own."""

    chain: bytes
    key: bytes
    client_ca: bytes
    context: ssl.SSLContext


class Certificates:
    """Those in some files. With a client authority, whoever connects must show a certificate that it has signed.

    Made, it has read them (`FailedPreconditionError` says what is wrong with them). `start`, then `stop`.
    """

    def __init__(self, chain: str, key: str, client_ca: str = "") -> None:
        self._paths = (chain, key, client_ca)
        self._looking: asyncio.TimerHandle | None = None
        self._seen = self._signature()
        #: What new connections get; replaced as a whole, because gRPC reads it from threads of its own.
        self.material = _read(chain, key, client_ca)
        #: How often changed files were taken, and how often they could not be used.
        self.reloads = self.failures = 0

    @property
    def asks_clients(self) -> bool:
        """Whether clients must show a certificate."""
        return bool(self._paths[2])

    def start(self) -> None:
        """Looks for changes from now on."""
        self.stop()
        self._looking = asyncio.get_running_loop().call_later(_LOOK_S, self._look_again)

    def stop(self) -> None:
        """No more."""
        if self._looking is not None:
            self._looking.cancel()

    def _look_again(self) -> None:
        self.look()
        self.start()

    def look(self) -> None:
        """Takes in files that have changed."""
        seen = self._signature()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self.material = _read(*self._paths)
        except HoldfastError as error:
            self.failures += 1
            get_logger().error("certificates_unusable", message=f"{error.message}; those known before stay in force")
        else:
            self.reloads += 1
            get_logger().info("certificates_read", certificate=self._paths[0])

    def _signature(self) -> _Seen:
        """What tells one version of the files from another."""
        return tuple(_version(path) for path in self._paths)


def read(chain: str, key: str, client_ca: str = "") -> Certificates | None:
    """Those in these files, None if none are named; `FailedPreconditionError` says what is wrong with them."""
    return Certificates(chain, key, client_ca) if chain else None


def _read(chain: str, key: str, client_ca: str) -> Material:
    contents = (
        _content("tls_cert", chain),
        _private_content("tls_key", key),
        _content("tls_client_ca", client_ca) if client_ca else b"",
    )
    try:
        return Material(*contents, _context(chain, key, client_ca))
    except (ssl.SSLError, ValueError, OSError) as error:
        raise FailedPreconditionError(
            f"the certificate in {chain!r} and the key in {key!r} cannot be used together"
            f"{f', or the authority in {client_ca!r} is none' if client_ca else ''}:"
            f" {getattr(error, 'reason', '') or error}; expected PEM, and a key without a password",
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


def _private_content(setting: str, path: str) -> bytes:
    """The content of a file that other users may neither read nor change."""
    content = _content(setting, path)
    if problem := problem_of_file(Path(path), Path(path).stat()):
        message = f"the key in {path!r}, which {setting} names, cannot be used: {problem}"
        raise FailedPreconditionError(message, reason="TLS_UNUSABLE")
    return content


def _content(setting: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        message = f"expected {setting} to be a file that can be read, got {path!r}: {error.strerror or error}"
        raise FailedPreconditionError(message, reason="TLS_UNUSABLE") from error


def _version(path: str) -> tuple[int, int, int] | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
