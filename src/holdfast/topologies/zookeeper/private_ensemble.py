"""A private ZooKeeper ensemble in a directory, for users without an ensemble.

It is durable (each server syncs before it acknowledges), and listens on the loopback address only. Its servers do not
outlive the process that started them, even a killed one, and each is restarted if it ends.

Other users of the machine can connect to its ports. The file `auth`, which only its owner may read, has the credentials
of clients: only they can use the nodes that are created with them. The servers authenticate each other by a secret
(SASL), so that no other process can join the ensemble and receive its data.

Invariants: the process that runs servers in the directory holds its lock, and the servers inherit it, so that the next
process waits until all servers of the last one have ended; the ports are chosen once, so that clients find them again.
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
#: How long a server may take to load the whole state from the leader, and later to reply to the leader. A server that
#: loses the leader while it loads can hang in its own shutdown (`server_process` kills it then).
_LEARN_MS, _ANSWER_MS = 20_000, 3_000
#: Timeout of connections between servers, and longest interval between two votes in an election.
_NEIGHBOUR_MS = 1_000

_USER = "holdfast"
_SECRET_BYTES = 32
#: The secret of the servers, in the format of Java's login modules.
_JAAS = """QuorumServer {{
  org.apache.zookeeper.server.auth.DigestLoginModule required user_{user}="{password}";
}};
QuorumLearner {{
  org.apache.zookeeper.server.auth.DigestLoginModule required username="{user}" password="{password}";
}};"""
#: Maximum number of concurrent handshakes between servers; three servers need a few.
_SASL_THREADS = 6

_START_S = 120.0
_STOP_S = 10.0


class ServerPorts(msgspec.Struct, frozen=True):
    """The ports of one server for clients, for the quorum and for elections."""

    client: int
    quorum: int
    election: int


class PrivateZooKeeper:
    """The servers of an ensemble in one directory; a single server has no replacement if it fails."""

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
        """The addresses for clients: `host:port`, separated by commas."""
        return ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def start(self) -> str:
        """Creates the directory if necessary, starts the servers, and returns the hosts once every server serves."""
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
        """Stops all servers; open connections are closed."""
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
        """Starts a server that is down, without waiting until it serves."""
        assert self._programs is not None
        others = [*self.servers[:index], *self.servers[index + 1 :]]
        self.servers[index].start(self._programs, self._claim.descriptor, lambda: any(other.mode() for other in others))

    def pause(self, index: int) -> None:
        """Stops one server with SIGSTOP; its connections stay open."""
        self.servers[index].send(signal.SIGSTOP)

    def resume(self, index: int) -> None:
        """Continues a paused server."""
        self.servers[index].send(signal.SIGCONT)

    def serving(self, index: int) -> None:
        """Waits until a server serves; `UnavailableError` if it does not in time."""
        server = self.servers[index]
        if not server.becomes_ready(server.mode, _START_S):
            message = f"server {index + 1} of the private ensemble does not start: {server.last_words()}"
            raise UnavailableError(message, reason="ZOOKEEPER_FAILED")

    def leader(self) -> int | None:
        """Returns the index of the leader; None if there is none. A paused server delays the reply."""
        return next((index for index, server in enumerate(self.servers) if server.mode() == "leader"), None)

    @property
    def auth_file(self) -> Path:
        """The file with the credentials of clients: `user:password`."""
        return self._directory / "auth"

    def close_top(self) -> None:
        """Allows only clients with the credentials to create nodes below `/`; existing nodes are unchanged."""
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
        """Creates the credentials of clients and the secret of the servers once, so that nodes stay readable."""
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
            # A short timeout, because all servers are on this machine: a paused one must not delay an election.
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
            # A standalone server does not answer clients that connect during its start; a quorum of one does.
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
        """Returns the ports of the first start; raises an error for another number of servers, or for used ports."""
        path = self._directory / "ports.json"
        if path.exists():
            try:
                ports = msgspec.json.decode(path.read_bytes(), type=list[ServerPorts])
            except msgspec.DecodeError as error:
                message = f"{path} must name the ensemble's ports: {error}; remove it, and other ports are chosen"
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
            message = (
                f"port {taken[0]} of the private ensemble is in use: end the process that has it, or remove {path}"
            )
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
