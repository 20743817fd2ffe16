"""A private ZooKeeper ensemble in a directory, for users without an ensemble.

It is durable (each server syncs what it acknowledges), and listens on the loopback and nowhere else. Its servers do not
outlive the process that started them, even a killed one, and each comes back.

Other users of the machine reach its ports. The file `auth`, which only its owner may read, holds the credentials of
clients: nodes that are made with them are closed to others. Servers show each other a secret of their own (SASL), so
that no other process joins them and is sent what they keep.

Invariants: the process that runs servers in the directory holds its lock, and the servers hold it too, so that the next
one waits until all servers of the last one are gone; the ports are chosen once, so that clients find them again.
"""

import contextlib
import os
import random
import secrets
import signal
import socket
from pathlib import Path

import msgspec

from holdfast.errors import FailedPreconditionError, UnavailableError
from holdfast.process.engine_directory import EngineDirectory
from holdfast.process.private_paths import prepare_directory, replace_secret
from holdfast.topologies.zookeeper.programs import INSTALLED, JavaPrograms, find_programs
from holdfast.topologies.zookeeper.server_process import ZooKeeperServer, replace_file

#: Below the range of Linux's ephemeral ports.
_PORTS = range(20_000, 32_000)
_SESSION_MS_MAX = 120_000
#: How long a server may take to learn what the leader knows, which is everything, and to answer it after that. A server
#: that is cut off while it learns can hang in its own shutdown (`server_process` ends it then).
_LEARN_MS, _ANSWER_MS = 20_000, 3_000
#: And how long it waits for a word of another candidate before it says its own again.
_NEIGHBOUR_MS = 1_000

_USER = "holdfast"
_SECRET_BYTES = 32
#: How servers know each other, in the format of Java's login modules.
_JAAS = """QuorumServer {{
  org.apache.zookeeper.server.auth.DigestLoginModule required user_{user}="{password}";
}};
QuorumLearner {{
  org.apache.zookeeper.server.auth.DigestLoginModule required username="{user}" password="{password}";
}};"""
#: Handshakes of servers that are made at a time; three servers need a few.
_SASL_THREADS = 6

_START_S = 120.0
_STOP_S = 10.0


class ServerPorts(msgspec.Struct, frozen=True):
    """Where a server meets its clients, the leader and the other candidates."""

    client: int
    quorum: int
    election: int


class PrivateZooKeeper:
    """Some servers in one directory; a single server has no other to take over from it."""

    def __init__(
        self,
        directory: Path,
        servers: int = 3,
        tick_ms: int = 500,
        *,
        is_synced: bool = True,
        installed: Path = INSTALLED,
    ) -> None:
        self._directory = directory.absolute()
        self._count = servers
        self._tick_ms = tick_ms
        self._is_synced = is_synced
        self._installed = installed
        self._programs: JavaPrograms | None = None
        self._claim = EngineDirectory(self._directory, holds="an ensemble", engine="ZooKeeper")
        self.servers: list[ZooKeeperServer] = []

    @property
    def hosts(self) -> str:
        """Where clients find it."""
        return ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def start(self) -> str:
        """Starts it, in a directory that is made if need be; returns the hosts once every server serves."""
        self._programs = find_programs(self._installed)
        self._claim.open(prepare_directory)
        try:
            ports = self._ports()
            self.servers = [self._server(index, ports) for index in range(self._count)]
            self._make_secrets()
            for index, server in enumerate(self.servers):
                server.prepare(index + 1)
                self.start_server(index)
            for index in range(self._count):
                self.serving(index)
            # For people: `zk://$(cat …/zookeeper/hosts)/holdfast`.
            (self._directory / "hosts").write_text(f"{self.hosts}\n")
        except BaseException:
            self.stop()
            raise
        return self.hosts

    def stop(self) -> None:
        """Ends all servers; connections that are open are cut."""
        for server in self.servers:
            server.end(signal.SIGTERM, signal.SIGCONT)  # a paused server continues in order to end
        for server in self.servers:
            server.ended(_STOP_S, signal.SIGKILL)
        self._claim.close()

    def kill(self, index: int) -> None:
        """Ends one server at once, as a power cut would; it stays down until `start_server`."""
        self.servers[index].end(signal.SIGKILL)
        self.servers[index].ended(_STOP_S, signal.SIGKILL)

    def start_server(self, index: int) -> None:
        """Starts one that is down, and does not wait for it."""
        assert self._programs is not None
        others = [*self.servers[:index], *self.servers[index + 1 :]]
        self.servers[index].start(self._programs, self._claim.descriptor, lambda: any(other.mode() for other in others))

    def pause(self, index: int) -> None:
        """One server stands still, and its connections stay open."""
        self.servers[index].send(signal.SIGSTOP)

    def resume(self, index: int) -> None:
        """One that stands still goes on."""
        self.servers[index].send(signal.SIGCONT)

    def serving(self, index: int) -> None:
        """Waits until a server serves; `UnavailableError` if it does not come to that."""
        server = self.servers[index]
        if not server.becomes_ready(server.mode, _START_S):
            message = f"server {index + 1} of the private ensemble does not start: {server.last_words()}"
            raise UnavailableError(message, reason="ZOOKEEPER_FAILED")

    def leader(self) -> int | None:
        """Which server leads now; None while none does. One that stands still delays the answer."""
        return next((index for index, server in enumerate(self.servers) if server.mode() == "leader"), None)

    @property
    def auth_file(self) -> Path:
        """Where the credentials of clients are: `user:password`."""
        return self._directory / "auth"

    def close_top(self) -> None:
        """Lets only clients with the credentials make nodes at the top; nodes that are there stay as they are."""
        from kazoo.client import KazooClient  # noqa: PLC0415 - servers alone need no client
        from kazoo.security import make_digest_acl  # noqa: PLC0415 - as above

        credentials = self.auth_file.read_text().strip()
        client = KazooClient(self.hosts, auth_data=[("digest", credentials)])
        try:
            client.start(timeout=_START_S)
            client.retry(client.set_acls, "/", [make_digest_acl(*credentials.split(":", 1), all=True)])
        finally:
            client.stop()
            client.close()

    def _make_secrets(self) -> None:
        """Made once, so that nodes stay readable: the credentials of clients, and what servers show each other."""
        if not self.auth_file.exists():
            replace_secret(self.auth_file, f"{_USER}:{secrets.token_urlsafe(_SECRET_BYTES)}")
        if not self._jaas.exists():
            replace_secret(self._jaas, _JAAS.format(user=_USER, password=secrets.token_urlsafe(_SECRET_BYTES)))

    @property
    def _jaas(self) -> Path:
        return self._directory / "jaas.conf"

    def _server(self, index: int, ports: list[ServerPorts]) -> ZooKeeperServer:
        folder = self._directory / str(index + 1)
        members = {f"server.{number}": f"127.0.0.1:{one.quorum}:{one.election}" for number, one in enumerate(ports, 1)}
        configuration = {
            "tickTime": str(self._tick_ms),
            "initLimit": str(max(10, _LEARN_MS // self._tick_ms)),
            "syncLimit": str(max(5, _ANSWER_MS // self._tick_ms)),
            # Neighbours are on this machine: one that stands still must not hold up the election of another leader.
            "cnxTimeout": str(_NEIGHBOUR_MS),
            "fastleader.maxNotificationInterval": str(_NEIGHBOUR_MS),
            "minSessionTimeout": str(2 * self._tick_ms),
            "maxSessionTimeout": str(_SESSION_MS_MAX),
            "dataDir": str(folder),
            "clientPort": str(ports[index].client),
            "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr",
            "forceSync": "yes" if self._is_synced else "no",
            "preAllocSize": "4096",
            "autopurge.snapRetainCount": "3",
            "autopurge.purgeInterval": "1",
            # One that stands alone leaves clients hanging that come while it starts; one that leads nobody does not.
            "standaloneEnabled": "false",
            "quorum.auth.enableSasl": "true",
            "quorum.auth.learnerRequireSasl": "true",
            "quorum.auth.serverRequireSasl": "true",
            "quorum.auth.learner.saslLoginContext": "QuorumLearner",
            "quorum.auth.server.saslLoginContext": "QuorumServer",
            "quorum.cnxn.threads.size": str(_SASL_THREADS),
            **members,
        }
        return ZooKeeperServer(folder, ports[index].client, configuration, self._jaas)

    # -- the directory

    def _ports(self) -> list[ServerPorts]:
        """Those of the first start; another number of servers is another ensemble."""
        path = self._directory / "ports.json"
        if path.exists():
            try:
                ports = msgspec.json.decode(path.read_bytes(), type=list[ServerPorts])
            except msgspec.DecodeError as error:
                message = f"{path} must name the ensemble's ports: {error}; remove it, and others are taken"
                raise FailedPreconditionError(message, reason="PORTS_DAMAGED") from error
        else:
            ports = [ServerPorts(*three) for three in _free_ports(self._count)]
            replace_file(path, msgspec.json.encode(ports).decode())
            os.fsync(self._claim.descriptor)
        if len(ports) != self._count:
            message = f"the ensemble in {self._directory} has {len(ports)} servers, not {self._count}"
            raise FailedPreconditionError(message, reason="ENSEMBLE_DIFFERS")
        taken = [port for one in ports for port in msgspec.structs.astuple(one) if not _is_free(port)]
        if taken:
            message = f"port {taken[0]} of the private ensemble is taken: end who has it, or remove {path}"
            raise UnavailableError(message, reason="PORT_TAKEN")
        return ports


def _free_ports(count: int) -> list[tuple[int, int, int]]:
    candidates = random.sample(_PORTS, len(_PORTS))
    free = (port for port in candidates if _is_free(port))
    return [(next(free), next(free), next(free)) for _ in range(count)]


def _is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return True
    return False
