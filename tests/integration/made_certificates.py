"""Certificate authorities and certificates that tests create for themselves."""

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = dt.timedelta(days=1)


class Authority:
    """Signs certificates for this machine; all files are in one folder."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        signed = (
            _builder(self._name, self._name, self._key.public_key(), is_expired=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.path = self._write(f"{name}.pem", signed.public_bytes(serialization.Encoding.PEM))

    def sign(self, name: str, *, is_expired: bool = False) -> tuple[str, str]:
        """Returns the paths of a certificate for localhost and 127.0.0.1, for servers and clients, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        signed = (
            _builder(subject, self._name, key.public_key(), is_expired=is_expired)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        plain = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        certificate = self._write(f"{name}.pem", signed.public_bytes(serialization.Encoding.PEM))
        return certificate, self._write(f"{name}.key", plain)

    def _write(self, name: str, data: bytes) -> str:
        path = self._folder / name
        path.touch(mode=0o600)
        path.write_bytes(data)
        return str(path)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, is_expired: bool
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 9 * _DAY)
        .not_valid_after(now - _DAY if is_expired else now + _DAY)
    )
