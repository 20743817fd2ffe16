"""`holdfast dashboard`: serves HTTP, the dashboard and metrics for jobs that are stored elsewhere.

It is an ordinary client, and stores nothing. It opens a directory like any other process: it serves the directory while
no other process does, so it also takes over when the serving process ends, and releases the directory at its own end.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from holdfast.client.access import Access
from holdfast.client.discovered_jobs import jobs_at
from holdfast.client.endpoints import UnixEndpoint
from holdfast.client.link import Client, DirectBackend
from holdfast.client.remote import RemoteJobs
from holdfast.client.retry_policy import NoRetryPolicy
from holdfast.client.routed_jobs import RoutedJobs
from holdfast.client.wire_transport import ReconnectingTransport, tcp_transport
from holdfast.core.capabilities import LEDGER, MONOLITH, Capabilities, Capability
from holdfast.errors import FailedPreconditionError, UnavailableError, UnimplementedError
from holdfast.observe.logs import get_logger
from holdfast.process.ready_line import announce
from holdfast.process.signals import on_stop
from holdfast.server.backend import Backend
from holdfast.server.protection import Protection, protect
from holdfast.server.public_server import PublicServer
from holdfast.server.unix_socket import SOCKET_NAME
from holdfast.settings import Settings, is_loopback
from holdfast.topologies.embedded.directory import DirectoryLink

#: The folder of a directory, the address of a server, those of several nodes in their order, or jobs without a server.
Place = Path | str | list[str] | DirectBackend


async def serve(settings: Settings, place: Place, access: Access) -> None:
    """Runs until SIGTERM or SIGINT. Raises `UnavailableError` if the place or the port is not available."""
    protection = protect(settings)
    _refuse_to_lend(protection, settings, access)
    stopping = asyncio.Event()
    with on_stop(stopping.set):
        async with AsyncExitStack() as closing:
            client = await closing.enter_async_context(connected(settings, place, access))
            backend = backend_of(client, await declared_by(client))
            public_server = PublicServer(backend, settings, protection=protection, has_grpc=False)
            addresses = await _started(public_server)
            closing.push_async_callback(public_server.stop)
            page = f"http{'s' if settings.tls_cert else ''}://{addresses['http']}/"
            line = {"event": "ready", **addresses, "backend": backend.name, "pid": os.getpid()}
            announce(line, f"{page} shows the jobs; Ctrl-C stops it")
            await stopping.wait()
    get_logger().info("stopped")


def _refuse_to_lend(protection: Protection, settings: Settings, access: Access) -> None:
    """Requires tokens on a non-loopback address if callers would use the access token of this process."""
    if access.token and protection.guard.is_open and not is_loopback(settings.host):
        raise FailedPreconditionError(
            f"expected --tokens FILE to listen on {settings.host!r}: without it, every caller would use the access"
            " token of this dashboard; --insecure does not allow that",
            reason="TOKENS_MISSING",
        )


@asynccontextmanager
async def connected(settings: Settings, place: Place, access: Access) -> AsyncIterator[Client]:
    """Connects a client to the place; it repeats no calls, because HTTP callers are told when to retry."""
    if isinstance(place, Path):
        async with (
            _opened(settings),
            RemoteJobs(ReconnectingTransport(UnixEndpoint(place / SOCKET_NAME)), NoRetryPolicy()) as near,
        ):
            yield near
        return
    async with await _far(place, access) as far:
        yield far


async def _far(place: str | list[str] | DirectBackend, access: Access) -> Client:
    if isinstance(place, str):
        return RemoteJobs(tcp_transport(place, access), NoRetryPolicy())
    if isinstance(place, list):
        return await jobs_at(place, access, retry_policy=NoRetryPolicy())
    return await place.client()


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[None]:
    """Keeps the directory open, so that some process serves its socket; this one if no other does."""
    link = DirectoryLink(settings)
    try:
        with suppress(UnimplementedError):  # a process of an earlier version serves it: any response is enough
            await link.call(lambda ports: ports.backend.capabilities())
        yield
    finally:
        await link.close()


async def declared_by(client: Client) -> Capabilities:
    """Returns the capabilities of the backend; for a server that is too old to declare any, those of its topology."""
    try:
        return await client.capabilities()
    except UnimplementedError:
        return MONOLITH if isinstance(client, RoutedJobs) else LEDGER


def backend_of(client: Client, told: Capabilities) -> Backend:
    """Returns the ports of a client, as far as its backend has the capabilities."""
    return Backend(
        client,
        admin=client if told.has(Capability.ADMINISTRATION) else None,
        feed=client if told.has(Capability.FEED) else None,
        schedules=client.schedules if told.has(Capability.SCHEDULES) else None,
        histories=client if told.has(Capability.HISTORY) else None,
        declared=told,
    )


async def _started(public_server: PublicServer) -> dict[str, str]:
    try:
        return await public_server.start()
    except UnavailableError as error:
        if error.reason != "PORT_IN_USE":
            raise
        reason = error.message.partition(";")[0]
        message = f"{reason}; choose another port with --port, or 0 for one that is free"
        raise UnavailableError(message, reason=error.reason) from error
