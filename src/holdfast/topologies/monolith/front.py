"""`holdfast front`: HTTP and the dashboard for all nodes, in a process of its own that stores nothing.

The front calls the nodes like any client; clients still find the owners of their jobs themselves. The front
authenticates its callers. It calls nodes on this machine over their sockets, which only this user may open and which
need no token, and other nodes over TCP, with a token of its own. If a node is down, only the jobs of that node are
UNAVAILABLE. The front does not retry, because its replies tell the caller when to retry.
"""

import asyncio
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.client.access import NO_CREDENTIALS, Access
from holdfast.client.endpoints import Endpoint, TcpEndpoint, UnixEndpoint
from holdfast.client.retry_policy import NoRetryPolicy
from holdfast.client.routed_jobs import RoutedJobs
from holdfast.core.capabilities import MONOLITH
from holdfast.observe.logs import get_logger
from holdfast.process.ready_line import announce
from holdfast.process.signals import on_stop
from holdfast.server.backend import Backend
from holdfast.server.early_ports import EarlyPorts
from holdfast.server.protection import protect
from holdfast.server.public_server import PublicServer
from holdfast.server.startup import StartStoppedError, Startup
from holdfast.settings import Settings


class NodeAddresses(msgspec.Struct, frozen=True):
    """The nodes in their fixed order: sockets on this machine, or addresses."""

    sockets: Sequence[Path] = ()
    addresses: Sequence[str] = ()
    #: Used for the addresses only.
    access: Access = NO_CREDENTIALS


class Front:
    """Serves HTTP for several nodes. `start`, then `stop`."""

    def __init__(self, settings: Settings, nodes: NodeAddresses, *, is_early: bool = False) -> None:
        """`FailedPreconditionError` names the protection that is missing or damaged.

        If it is early, it listens at once and serves when all nodes do.
        """
        self._settings = settings
        self._protection = protect(settings)
        self._startup = Startup() if is_early else None
        places = [str(path) for path in nodes.sockets] or nodes.addresses
        endpoint = _near if nodes.sockets else TcpEndpoint
        self._jobs = jobs = RoutedJobs(places, nodes.access, endpoint=endpoint, retry_policy=NoRetryPolicy())
        self._backend = Backend(jobs, admin=jobs, schedules=jobs.schedules, declared=MONOLITH, histories=jobs)
        self._public_server: PublicServer

    async def start(self) -> dict[str, str]:
        """Listens and serves, even if nodes are unreachable; if it is early, it waits for them first."""
        try:
            early = await self._until_nodes_serve(self._startup) if self._startup is not None else None
            self._public_server = PublicServer(
                self._backend,
                self._settings,
                protection=self._protection,
                has_grpc=False,
                early=early,
            )
            return await self._public_server.start()
        except BaseException:
            await self._jobs.close()
            raise

    async def _until_nodes_serve(self, startup: Startup) -> EarlyPorts:
        """Listens, and returns the ports when all nodes serve; probes and requests are answered meanwhile."""
        early = EarlyPorts(self._settings, self._protection, startup, has_grpc=False)
        await early.open_until(self._jobs.answering, self._jobs.total)
        return early

    def give_up(self) -> None:
        """Ends a start that waits for the nodes."""
        if self._startup is not None:
            self._startup.stop()

    async def stop(self) -> None:
        """Stops, after requests in flight were answered."""
        await self._public_server.stop()
        await self._jobs.close()


def _near(address: str, access: Access) -> Endpoint:
    del access  # access to the socket grants all rights
    return UnixEndpoint(Path(address))


async def serve(settings: Settings, nodes: NodeAddresses, *, is_early: bool = False) -> None:
    """Serves until TERM or INT."""
    stopping = asyncio.Event()
    front = Front(settings, nodes, is_early=is_early)

    def stop() -> None:
        stopping.set()
        front.give_up()

    with on_stop(stop), contextlib.suppress(StartStoppedError):
        addresses = await front.start()
        line = {"event": "ready", **addresses, "pid": os.getpid()}
        secure = "s" if settings.tls_cert else ""
        announce(line, f"http{secure}://{addresses['http']}/ shows the jobs of all nodes; Ctrl-C stops it")
        await stopping.wait()
        await front.stop()
        get_logger().info("stopped")
