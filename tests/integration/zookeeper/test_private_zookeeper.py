"""A private ensemble, as real servers."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from holdfast.errors import FailedPreconditionError, UnavailableError
from holdfast.topologies.zookeeper import server_process
from holdfast.topologies.zookeeper.private_ensemble import PrivateZooKeeper
from holdfast.topologies.zookeeper.server_process import ZooKeeperServer
from tests.e2e.wait_until import eventually
from tests.zookeeper import TICK_MS, require_zookeeper

#: Starts an ensemble, prints its address and process id, and waits to be killed.
STARTER = """
import sys
from pathlib import Path
from holdfast.topologies.zookeeper.private_ensemble import PrivateZooKeeper
servers = PrivateZooKeeper(Path(sys.argv[1]), 1, 100)
print(servers.start(), servers.servers[0].pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the ensemble of one server that tests share."""
    return tmp_path_factory.mktemp("lone") / "deep" / "zk"


@pytest.fixture(scope="module")
def shared(place: Path) -> Iterator[PrivateZooKeeper]:
    """One server, which is stopped after the tests."""
    require_zookeeper()
    server = PrivateZooKeeper(place, 1, TICK_MS)
    yield server
    server.stop()


@pytest.fixture
def lone(shared: PrivateZooKeeper) -> PrivateZooKeeper:
    """The shared server, running; a test may leave it stopped."""
    if not shared.servers or not shared.servers[0].is_kept:
        shared.start()
    return shared


def keep(hosts: str, path: str) -> None:
    """Creates a node."""
    client = KazooClient(hosts, timeout=5)
    client.start(timeout=30)
    with contextlib.suppress(NodeExistsError):  # an earlier attempt without a response has created it
        client.retry(client.create, path, b"kept")
    client.stop()
    client.close()


def kept(hosts: str, path: str) -> bytes:
    """Reads a node after a sync."""
    client = KazooClient(hosts, timeout=5)
    client.start(timeout=30)
    client.retry(client.sync, path)
    data, _ = client.retry(client.get, path)
    client.stop()
    client.close()
    return bytes(data)


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def listeners(pid: int) -> set[str]:
    """The addresses on which a process listens, as the kernel writes them."""
    inodes = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                found.add(words[1].rpartition(":")[0])
    return found


def test_restarted_server_has_the_same_nodes_and_address(lone: PrivateZooKeeper, place: Path) -> None:
    """A restarted server has the same nodes and address, and its directory is private."""
    hosts = lone.hosts
    keep(hosts, "/stopped")
    lone.stop()
    assert lone.start() == hosts
    assert kept(hosts, "/stopped") == b"kept"
    assert place.stat().st_mode & 0o077 == 0


def test_server_listens_on_the_loopback_alone(lone: PrivateZooKeeper) -> None:
    """The server listens only on loopback, and in a process group that Ctrl-C does not reach."""
    loopback = {"0100007F", "0000000000000000FFFF00000100007F"}
    found = listeners(lone.servers[0].pid)
    assert found
    assert found <= loopback
    assert os.getpgid(lone.servers[0].pid) != os.getpgid(0)


def test_server_that_dies_comes_back(lone: PrivateZooKeeper) -> None:
    """A server that is killed is restarted with all acknowledged data."""
    hosts = lone.hosts
    keep(hosts, "/killed")
    first = lone.servers[0].pid
    os.kill(first, signal.SIGKILL)
    eventually(lambda: lone.servers[0].pid != first and lone.servers[0].mode())
    assert kept(hosts, "/killed") == b"kept"


def test_server_ends_with_a_killed_starter(tmp_path: Path) -> None:
    """The server ends when the process that started it is killed, and the next start waits for its end."""
    require_zookeeper()
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        hosts, pid = process.stdout.readline().decode().split()
        process.kill()
    following = PrivateZooKeeper(tmp_path, 1, TICK_MS)
    assert following.start() == hosts
    following.stop()
    assert not is_alive(int(pid))


@pytest.mark.parametrize("damaged", [b"", b"[[1, 2, 3", b"{}", b"\xff"])
def test_damaged_list_of_ports_is_named(tmp_path: Path, damaged: bytes) -> None:
    """A damaged list of ports fails the start with an error that says what to do."""
    require_zookeeper()
    (tmp_path / "ports.json").write_bytes(damaged)
    with pytest.raises(FailedPreconditionError, match=r"ports\.json must name the ensemble's ports.*remove it"):
        PrivateZooKeeper(tmp_path, 1, TICK_MS).start()


def test_one_ensemble_per_directory(lone: PrivateZooKeeper, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second ensemble in the directory of a running one is refused, and the first one continues."""
    monkeypatch.setattr("holdfast.process.engine_directory._LOCK_S", 0.1)
    with pytest.raises(FailedPreconditionError, match="another process runs ZooKeeper in"):
        PrivateZooKeeper(place, 1, TICK_MS).start()
    keep(lone.hosts, "/unharmed")


def test_port_that_is_taken_is_named(lone: PrivateZooKeeper) -> None:
    """If the ensemble's port is in use, the start fails with the port's number instead of taking another one."""
    hosts = lone.hosts
    lone.stop()
    port = int(hosts.rpartition(":")[2])
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(UnavailableError, match=f"port {port} of the private ensemble is in use"):
            lone.start()
    assert lone.start() == hosts


def test_other_number_of_servers_is_refused(lone: PrivateZooKeeper, place: Path) -> None:
    """A start with another number of servers than before is refused."""
    lone.stop()
    with pytest.raises(FailedPreconditionError, match="has 1 servers, not 3"):
        PrivateZooKeeper(place, 3, TICK_MS).start()


def test_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    """The error of a failed start contains ZooKeeper's own message."""
    require_zookeeper()
    (tmp_path / "1").mkdir()
    (tmp_path / "1/version-2").write_text("in the way")
    with pytest.raises(UnavailableError, match=r"does not start: .*version-2"):
        PrivateZooKeeper(tmp_path, 1, TICK_MS).start()


def test_missing_zookeeper_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If ZooKeeper or Java is not installed, the error names the command that installs both."""
    require_zookeeper()
    with pytest.raises(FailedPreconditionError, match=r"no ZooKeeper .*apt-get install zookeeper, or .*--ensemble"):
        PrivateZooKeeper(tmp_path, installed=tmp_path / "none").start()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FailedPreconditionError, match=r"no Java .*apt-get install zookeeper"):
        PrivateZooKeeper(tmp_path).start()


def test_ensemble_serves_without_one_of_three(ensemble: PrivateZooKeeper) -> None:
    """Data that a majority has acknowledged is readable after the leader was killed and another server is paused."""
    leader = eventually(ensemble.leader, lambda found: found is not None)
    assert leader is not None
    ensemble.kill(leader)
    keep(ensemble.hosts, f"/without_{leader}")
    ensemble.start_server(leader)
    ensemble.serving(leader)
    other = (leader + 1) % 3
    ensemble.pause(other)
    assert kept(ensemble.hosts, f"/without_{leader}") == b"kept"


def test_server_that_hangs_is_replaced(ensemble: PrivateZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that hangs is killed and started again."""
    monkeypatch.setattr(server_process, "_LOOK_S", 0.2)
    monkeypatch.setattr(server_process, "_STUCK_S", 1.0)
    hung = ensemble.servers[1]
    before = hung.pid
    ensemble.pause(1)
    eventually(lambda: hung.pid != before, what="another process of the server")
    ensemble.serving(1)
    assert not is_alive(before)


def snapshots(server: ZooKeeperServer) -> set[str]:
    """The names of a server's snapshots."""
    return {path.name for path in (server.folder / "version-2").glob("snapshot.*")}


def test_server_that_comes_back_is_sent_everything(ensemble: PrivateZooKeeper) -> None:
    """A server that missed changes gets a full snapshot from the leader, because a partial update could differ."""
    leader = eventually(ensemble.leader, lambda found: found is not None)
    assert leader is not None
    away = (leader + 1) % 3
    for host in ensemble.hosts.split(","):  # a server that was just stopped may wrongly believe that it follows
        keep(host, f"/known_by_{host}")
    before = snapshots(ensemble.servers[away])
    ensemble.kill(away)
    keep(ensemble.hosts, f"/missed_by_{away}")
    ensemble.start_server(away)
    ensemble.serving(away)
    assert snapshots(ensemble.servers[away]) - before
    assert kept(ensemble.hosts.split(",")[away], f"/missed_by_{away}") == b"kept"
