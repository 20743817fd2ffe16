"""`holdfast front`: HTTP and the dashboard over all nodes, in a process of its own that keeps nothing.

It asks the nodes as every client does, and clients still find the owners of their jobs themselves. Who calls is checked
here. Nodes of this machine are asked over their sockets, which only this user may open and which want no token; others
over gRPC, with a token of the front's own. A node that is down makes its own jobs UNAVAILABLE and nothing else: nothing
is repeated here, because whoever asks is told when to ask again.
"""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.client.access import ANYBODY, Access
from holdfast.client.grpc_transport import GrpcCarrier
from holdfast.client.reconnecting_transport import LastingCarrier
from holdfast.client.retry_policy import Once
from holdfast.client.routed import RoutedJobs
from holdfast.client.transport import LineCarrier
from holdfast.core.capabilities import MONOLITH
from holdfast.observe.logs import get_logger
from holdfast.process.ready_line import announce
from holdfast.process.signals import on_stop
from holdfast.server.backend import Backend
from holdfast.server.protection import protect
from holdfast.server.public_server import Face
from holdfast.settings import Settings


class NodeAddresses(msgspec.Struct, frozen=True):
    """Where the nodes are, in their fixed order: sockets of this machine, or addresses."""

    sockets: Sequence[Path] = ()
    addresses: Sequence[str] = ()
    #: For the addresses.
    access: Access = ANYBODY


class Front:
    """HTTP over several nodes. `start`, then `stop`."""

    def __init__(self, settings: Settings, nodes: NodeAddresses) -> None:
        """`FailedPreconditionError` says what protection is missing or damaged."""
        protection = protect(settings)
        places = [str(path) for path in nodes.sockets] or nodes.addresses
        carry = _near if nodes.sockets else GrpcCarrier
        self._jobs = jobs = RoutedJobs(places, nodes.access, carry=carry, retrying=Once())
        backend = Backend(jobs, admin=jobs, schedules=jobs.schedules, declared=MONOLITH, histories=jobs)
        self._face = Face(backend, settings, protection=protection, has_grpc=False)

    async def start(self) -> dict[str, str]:
        """Listens, whether the nodes are there or not."""
        try:
            return await self._face.start()
        except BaseException:
            await self._jobs.close()
            raise

    async def stop(self) -> None:
        """Requests under way are answered."""
        await self._face.stop()
        await self._jobs.close()


def _near(address: str, access: Access) -> LineCarrier:
    del access  # whoever may open the socket may do everything
    return LastingCarrier(Path(address))


async def serve(settings: Settings, nodes: NodeAddresses) -> None:
    """Until TERM or INT."""
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
