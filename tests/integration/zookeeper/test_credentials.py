"""Nodes made with credentials are closed to sessions without them; older roots are closed when credentials are set."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE

from holdfast import Holdfast
from holdfast.errors import FailedPreconditionError
from holdfast.topologies.zookeeper.backend.connection import connect
from holdfast.topologies.zookeeper.backend.paths import Paths
from holdfast.topologies.zookeeper.ensemble_url import ensemble_of
from holdfast.topologies.zookeeper.private_ensemble import PrivateZooKeeper
from tests.zookeeper import TICK_MS, Place, require_zookeeper

CREDENTIALS, OTHERS = "shop:correct-horse", "stranger:battery-staple"


@contextmanager
def client_of(hosts: str, credentials: str = "") -> Iterator[KazooClient]:
    """A plain client that is no part of Holdfast."""
    client = KazooClient(hosts, timeout=10, auth_data=[("digest", credentials)] if credentials else None)
    client.start(timeout=30)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.fixture
def auth_file(tmp_path: Path) -> Path:
    """A file with the credentials, for URLs."""
    path = tmp_path / "auth"
    path.touch(mode=0o600)
    path.write_text(f"{CREDENTIALS}\n")
    return path


def url_of(place: Place, auth_file: Path | None = None) -> str:
    """The URL of an app's jobs."""
    return f"zk://{place.hosts}{place.root}?lease_ms=2000{f'&auth_file={auth_file}' if auth_file else ''}"


def nodes_below(client: KazooClient, top: str) -> list[str]:
    """Every node at and below a path."""
    return [top, *(node for name in client.get_children(top) for node in nodes_below(client, f"{top}/{name}"))]


@contextmanager
def app_at(url: str) -> Iterator[Holdfast]:
    """An app with one job function."""
    with Holdfast(url) as app:

        @app.job
        def double(number: int) -> int:
            return 2 * number

        yield app


@pytest.mark.parametrize("shown", ["", OTHERS], ids=["none", "others"])
def test_session_without_the_credentials_reaches_no_node(zookeeper: Place, auth_file: Path, shown: str) -> None:
    """A session without the credentials cannot read, change, create or delete any node, and jobs run meanwhile."""
    with app_at(url_of(zookeeper, auth_file)) as app, app.worker():
        assert app.submit("double", [21]).result(timeout_s=30) == 42
        with client_of(zookeeper.hosts, CREDENTIALS) as known:
            nodes = nodes_below(known, zookeeper.root)
        assert len(nodes) > len(Paths(zookeeper.root).fixed())
        with client_of(zookeeper.hosts, shown) as stranger:
            for node in nodes:
                with pytest.raises(NoAuthError):
                    stranger.get(node)
                with pytest.raises(NoAuthError):
                    stranger.get_children(node)
                with pytest.raises(NoAuthError):
                    stranger.set(node, b"mine")
                with pytest.raises(NoAuthError):
                    stranger.create(f"{node}/mine")
                with pytest.raises(NoAuthError):
                    stranger.set_acls(node, OPEN_ACL_UNSAFE)
            for node in nodes[1:]:
                with pytest.raises(NoAuthError):
                    stranger.delete(node)
        assert app.submit("double", [4]).result(timeout_s=30) == 8


@pytest.mark.parametrize("shown", ["", OTHERS], ids=["none", "others"])
async def test_error_of_an_app_without_credentials_says_how_to_name_their_file(zookeeper: Place, shown: str) -> None:
    """The error of an app without the credentials says how to name their file."""
    first = await connect(zookeeper.hosts, zookeeper.root, session_ms=2_000, credentials=CREDENTIALS)
    await first.close()
    with pytest.raises(FailedPreconditionError, match="auth_file=FILE") as refused:
        await connect(zookeeper.hosts, zookeeper.root, session_ms=2_000, credentials=shown)
    assert refused.value.reason == "ENSEMBLE_REFUSED"


def test_root_of_an_earlier_version_is_closed_with_all_its_jobs(zookeeper: Place, auth_file: Path) -> None:
    """Jobs submitted without credentials run, and the first session with credentials closes the root to others."""
    with app_at(url_of(zookeeper)) as app:
        waiting = [app.submit("double", [number]).id for number in range(20)]
    with client_of(zookeeper.hosts) as stranger:
        open_nodes = nodes_below(stranger, zookeeper.root)
        with app_at(url_of(zookeeper, auth_file)) as app, app.worker():
            assert [app.get(job_id).result(timeout_s=30) for job_id in waiting] == [2 * n for n in range(20)]
        still = [node for node in open_nodes if stranger.exists(node)]
        assert len(still) > len(waiting)
        for node in still:
            with pytest.raises(NoAuthError):
                stranger.get(node)


async def test_interrupted_closing_of_an_older_root_is_done_again(zookeeper: Place) -> None:
    """The next session completes an interrupted closing of an older root, because its layout node is closed last."""
    first = await connect(zookeeper.hosts, zookeeper.root, session_ms=2_000)
    await first.close()
    paths = Paths(zookeeper.root)
    with client_of(zookeeper.hosts, CREDENTIALS) as known:
        closed = await connect(zookeeper.hosts, zookeeper.root, session_ms=2_000, credentials=CREDENTIALS)
        await closed.close()
        acl, _ = known.get_acls(paths.root)
        for node in (paths.layout, paths.failed):
            known.set_acls(node, OPEN_ACL_UNSAFE)
        again = await connect(zookeeper.hosts, zookeeper.root, session_ms=2_000, credentials=CREDENTIALS)
        await again.close()
        assert {tuple(known.get_acls(node)[0]) for node in nodes_below(known, paths.root)} == {tuple(acl)}


def test_credentials_are_read_from_their_file_alone(tmp_path: Path) -> None:
    """Credentials are read from their file only, and a malformed file is refused without showing its content."""
    place = ensemble_of(f"zk://a:1/x?auth_file={tmp_path}/auth%20file&lease_ms=2000")
    assert place.auth_file == f"{tmp_path}/auth file"
    assert ensemble_of(place.url) == place
    with pytest.raises(FailedPreconditionError, match="No such file"):
        place.credentials()
    (tmp_path / "auth file").touch(mode=0o600)
    (tmp_path / "auth file").write_text("no-colon-in-this-secret\n")
    with pytest.raises(FailedPreconditionError, match="23 characters that are not shown"):
        place.credentials()
    (tmp_path / "auth file").write_text(f"{CREDENTIALS}\n")
    (tmp_path / "auth file").chmod(0o666)
    with pytest.raises(FailedPreconditionError, match="chmod 600"):
        place.credentials()
    (tmp_path / "auth file").chmod(0o600)
    assert place.credentials() == CREDENTIALS
    assert "horse" not in repr(place) + place.url + place.place


def test_private_ensemble_keeps_its_secrets_to_itself(tmp_path: Path) -> None:
    """The secrets of a private ensemble are 0600 and survive a restart, and its servers refuse other clients."""
    require_zookeeper()
    place = tmp_path / "z"
    servers = PrivateZooKeeper(place, 3, TICK_MS, is_synced=False)
    try:
        servers.start()
        servers.close_top()
        secret = servers.auth_file.read_text().strip()
        for name in ("auth", "jaas.conf"):
            assert (place / name).stat().st_mode & 0o777 == 0o600
        with client_of(servers.hosts) as stranger:
            with pytest.raises(NoAuthError):
                stranger.create("/mine")
            with pytest.raises(NoAuthError):
                stranger.get_children("/")
        with client_of(servers.hosts, secret) as known:
            known.create("/ours")
        for server in servers.servers:
            assert "imok" not in four_letters(server.port, b"ruok")
            assert "not executed because it is not in the whitelist" in four_letters(server.port, b"dump")
        assert listening_beyond_loopback({server.pid for server in servers.servers}) == []
    finally:
        servers.stop()
    again = PrivateZooKeeper(place, 3, TICK_MS, is_synced=False)
    try:
        again.start()
        again.close_top()
        assert again.auth_file.read_text().strip() == secret
    finally:
        again.stop()


def four_letters(port: int, word: bytes) -> str:
    """A server's response to a four-letter command."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(word)
        return connection.makefile("rb").read().decode()


def listening_beyond_loopback(pids: set[int]) -> list[str]:
    """Non-loopback addresses on which these processes listen, from the kernel's tables."""
    inodes = {
        link.readlink().name
        for pid in pids
        for link in Path(f"/proc/{pid}/fd").iterdir()
        if "socket" in str(link.readlink())
    }
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            is_listening, is_theirs = words[3] == "0A", f"socket:[{words[9]}]" in inodes
            is_loopback = words[1].startswith(("0100007F:", "0000000000000000FFFF00000100007F:"))
            if is_listening and is_theirs and not is_loopback:
                found.append(words[1])
    return found


def test_process_that_is_no_server_of_the_ensemble_is_not_let_in(tmp_path: Path) -> None:
    """A process without the secret cannot join the ensemble as a follower."""
    require_zookeeper()
    servers = PrivateZooKeeper(tmp_path / "z", 3, TICK_MS, is_synced=False)
    try:
        servers.start()
        leader = servers.leader()
        assert leader is not None
        quorum = msgspec.json.decode((tmp_path / "z" / "ports.json").read_bytes())[leader]["quorum"]
        with socket.create_connection(("127.0.0.1", quorum), timeout=30) as connection:
            # A QuorumPacket FOLLOWERINFO (11) of server 9, version 0x10000, without transactions.
            told = struct.pack(">qiq", 9, 0x10000, 0)
            connection.sendall(struct.pack(">iqi", 11, 0, len(told)) + told + struct.pack(">i", -1))
            assert connection.recv(1) == b""
    finally:
        servers.stop()
