"""`holdfast front`: HTTP and the dashboard for all nodes, in a process of its own that stores nothing.

The front calls the nodes like any client; clients still find the owners of their jobs themselves. The front
authenticates its callers. It calls nodes on this machine over their sockets, which only this user may open and which
need no token, and other nodes over TCP, with a token of its own. If a node is down, only the jobs of that node are
UNAVAILABLE. The front does not retry, because its replies tell the caller when to retry.
"""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.client.access import NO_CREDENTIALS, Access
from holdfast.client.endpoints import UnixEndpoint
from holdfast.client.retry_policy import NoRetryPolicy
from holdfast.client.routed_jobs import RoutedJobs
from holdfast.client.transport import PersistentTransport
from holdfast.client.wire_transport import ReconnectingTransport, tcp_transport
from holdfast.core.capabilities import MONOLITH
from holdfast.observe.logs import get_logger
from holdfast.process.ready_line import announce
from holdfast.process.signals import on_stop
from holdfast.server.backend import Backend
from holdfast.server.protection import protect
from holdfast.server.public_server import PublicServer
from holdfast.settings import Settings


class NodeAddresses(msgspec.Struct, frozen=True):
    """The nodes in their fixed order: sockets on this machine, or addresses."""

    sockets: Sequence[Path] = ()
    addresses: Sequence[str] = ()
    #: Used for the addresses only.
    access: Access = NO_CREDENTIALS


class Front:
    """Serves HTTP for several nodes. `start`, then `stop`."""

    def __init__(self, settings: Settings, nodes: NodeAddresses) -> None:
        """`FailedPreconditionError` names the protection that is missing or damaged."""
        protection = protect(settings)
        places = [str(path) for path in nodes.sockets] or nodes.addresses
        open_transport = _near if nodes.sockets else tcp_transport
        self._jobs = jobs = RoutedJobs(
            places, nodes.access, open_transport=open_transport, retry_policy=NoRetryPolicy()
        )
        backend = Backend(jobs, admin=jobs, schedules=jobs.schedules, declared=MONOLITH, histories=jobs)
        self._public_server = PublicServer(backend, settings, protection=protection, has_grpc=False)

    async def start(self) -> dict[str, str]:
        """Listens, even if nodes are unreachable."""
        try:
            return await self._public_server.start()
        except BaseException:
            await self._jobs.close()
            raise

    async def stop(self) -> None:
        """Stops, after requests in flight were answered."""
        await self._public_server.stop()
        await self._jobs.close()


def _near(address: str, access: Access) -> PersistentTransport:
    del access  # access to the socket grants all rights
    return ReconnectingTransport(UnixEndpoint(Path(address)))


async def serve(settings: Settings, nodes: NodeAddresses) -> None:
    """Serves until TERM or INT."""
    stopping = asyncio.Event()
    with on_stop(stopping.set):
        front = Front(settings, nodes)
        addresses = await front.start()
        line = {"event": "ready", **addresses, "pid": os.getpid()}
        secure = "s" if settings.tls_cert else ""
        announce(line, f"http{secure}://{addresses['http']}/ shows the jobs of all nodes; Ctrl-C stops it")
        await stopping.wait()
        await front.stop()
        get_logger().info("stopped")
