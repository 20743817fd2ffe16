"""What a server shows of itself over TLS, and whose certificates it wants to see: the same for every protocol."""

import ssl
from pathlib import Path

import msgspec

from holdfast.errors import FailedPreconditionError


class Certificates(msgspec.Struct, frozen=True):
    """As PEM, and as a context for sockets of our own.

    With a `client_ca`, whoever connects must show a certificate that it has signed.
    """

    chain: bytes
    key: bytes
    client_ca: bytes
    context: ssl.SSLContext


def read(chain: str, key: str, client_ca: str = "") -> Certificates | None:
    """Those in these files, None if none are named; `FailedPreconditionError` says what is wrong with them."""
    if not chain:
        return None
    contents = (
        _content("tls_cert", chain),
        _content("tls_key", key),
        _content("tls_client_ca", client_ca) if client_ca else b"",
    )
    try:
        return Certificates(*contents, _context(chain, key, client_ca))
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


def _content(setting: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        message = f"expected {setting} to be a file that can be read, got {path!r}: {error.strerror or error}"
        raise FailedPreconditionError(message, reason="TLS_UNUSABLE") from error
