"""Certificates that change while a server runs: new connections get the new ones, over the wire, gRPC and HTTP."""

import asyncio
import shutil
import ssl
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from holdfast.client.access import access_of
from holdfast.errors import HoldfastError
from holdfast.server.ledger_server import LedgerServer
from tests.integration.conftest import Start
from tests.integration.http_client import request
from tests.integration.made_certificates import Authority
from tests.integration.transports import NETWORKS, Hearing, Remote, lasting_remote

EVERYWHERE, NOWHERE = [True] * 3, [False] * 3


class Files:
    """The certificate files of a server, and the authorities that fill them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.old, self.new = Authority(folder / "old", "old"), Authority(folder / "new", "new")
        self.cert, self.key, self.client_ca = (str(folder / name) for name in ("tls.pem", "tls.key", "ca.pem"))
        self.put(self.old)

    def put(self, authority: Authority) -> None:
        certificate, key = authority.sign("server")
        shutil.copy(certificate, self.cert)
        shutil.copy(key, self.key)
        shutil.copy(authority.path, self.client_ca)

    def damage(self, how: str) -> None:
        if how == "empty":
            Path(self.cert).write_bytes(b"")
        elif how == "other key":
            shutil.copy(self.old.sign("another")[1], self.key)
        else:
            Path(self.cert).unlink()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "files")


def look(server: LedgerServer) -> None:
    """Reloads the certificate files now instead of within a second."""
    certificates = server.public_server.protection.certificates
    assert certificates is not None
    certificates.look()


async def is_trusted(server: LedgerServer, authority: Authority, *, shown: tuple[str, str] | None = None) -> list[bool]:
    """Whether the wire, gRPC and HTTP each answer a client that trusts only this authority."""
    query = f"?ca={authority.path}" + (f"&cert={shown[0]}&key={shown[1]}" if shown else "")
    access = access_of(f"holdfasts://{server.address}{query}")
    context = ssl.create_default_context(cafile=authority.path)
    if shown:
        context.load_cert_chain(*shown)
    asked = [await _asked(lasting_remote(server, kind, access, Hearing())) for kind in NETWORKS]
    return [*asked, await _requested(server, context)]


async def _asked(client: Remote) -> bool:
    try:
        await client.stats()
    except HoldfastError:
        return False
    finally:
        await client.close()
    return True


async def _requested(server: LedgerServer, context: ssl.SSLContext) -> bool:
    host, _, port = server.http_address.rpartition(":")
    try:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    except (ssl.SSLError, ConnectionError):
        return False
    try:
        writer.write(request("GET", "/livez"))
        return (await reader.readline()).startswith(b"HTTP/1.1 200")
    except (ssl.SSLError, ConnectionError):
        return False
    finally:
        writer.transport.abort()


async def test_changed_certificate_is_shown_to_new_connections(start: Start, files: Files) -> None:
    """New connections get the changed certificate, and an open connection continues."""
    server = await start(tls_cert=files.cert, tls_key=files.key, no_http=False, http_port=0)
    access = access_of(f"holdfasts://{server.address}?ca={files.old.path}")
    staying = [lasting_remote(server, kind, access, Hearing()) for kind in NETWORKS]
    assert [(await client.stats()).epoch for client in staying] == [1, 1]
    assert await is_trusted(server, files.old) == EVERYWHERE
    assert await is_trusted(server, files.new) == NOWHERE
    files.put(files.new)
    look(server)
    assert await is_trusted(server, files.new) == EVERYWHERE
    assert await is_trusted(server, files.old) == NOWHERE
    assert [(await client.stats()).epoch for client in staying] == [1, 1]
    for client in staying:
        await client.close()


async def test_server_notices_the_change_by_itself(start: Start, files: Files) -> None:
    """The server notices changed certificate files by itself."""
    server = await start(tls_cert=files.cert, tls_key=files.key, no_http=False, http_port=0)
    files.put(files.new)
    while not all(await is_trusted(server, files.new)):
        pass


@pytest.mark.parametrize("damage", ["empty", "other key", "gone"])
async def test_unusable_files_leave_the_old_certificate(start: Start, files: Files, damage: str) -> None:
    """Unusable certificate files are logged and counted, the old certificate stays, and later valid files are used."""
    server = await start(tls_cert=files.cert, tls_key=files.key, no_http=False, http_port=0)
    certificates = server.public_server.protection.certificates
    assert certificates is not None
    files.damage(damage)
    with capture_logs() as logs:
        look(server)
        look(server)
    assert [log["event"] for log in logs] == ["certificates_unusable"]
    assert (certificates.reloads, certificates.failures) == (0, 1)
    assert await is_trusted(server, files.old) == EVERYWHERE
    files.put(files.new)
    look(server)
    assert (certificates.reloads, certificates.failures) == (1, 1)
    assert await is_trusted(server, files.new) == EVERYWHERE


async def test_authority_of_clients_changes_too(start: Start, files: Files) -> None:
    """After a change of the client authority, the server refuses clients of the old one and accepts new ones."""
    told = {"tls_cert": files.cert, "tls_key": files.key, "tls_client_ca": files.client_ca}
    server = await start(**told, no_http=False, http_port=0)
    old, new = files.old.sign("client"), files.new.sign("client")
    assert await is_trusted(server, files.old, shown=old) == EVERYWHERE
    assert await is_trusted(server, files.old, shown=new) == NOWHERE
    files.put(files.new)
    look(server)
    assert await is_trusted(server, files.new, shown=new) == EVERYWHERE
    assert await is_trusted(server, files.new, shown=old) == NOWHERE
