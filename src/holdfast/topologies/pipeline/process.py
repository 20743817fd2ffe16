"""`holdfast pipeline ROLE`: runs one process of the pipeline until SIGTERM or SIGINT.

The process prints its ready line once its dependencies are available and it listens. Roles other than the gateway
authenticate their callers by the hashes of service tokens; a role without hashes logs a warning. They have no TLS, so
they listen on a loopback address only, unless the user gives `--insecure`.
"""

import asyncio
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from holdfast.errors import InvalidArgumentError
from holdfast.observe.log_setup import ByteStream, line_writer
from holdfast.observe.logs import get_logger
from holdfast.observe.transitions import transition_lines
from holdfast.process.ready_line import announce
from holdfast.process.signals import on_stop
from holdfast.server.auth.service_tokens import KNOWN
from holdfast.settings import Settings, is_loopback
from holdfast.topologies.pipeline.role_table import RoleContext, RoleOptions, open_part
from holdfast.topologies.pipeline.roles.callers import Credentials
from holdfast.topologies.pipeline.roles.role_server import RoleServer
from holdfast.topologies.worker_process import exempt_what_is_loaded

if TYPE_CHECKING:
    from holdfast.topologies.pipeline.gateway import PipelineGateway


async def serve(options: RoleOptions, settings: Settings, credentials: Credentials, log_stream: ByteStream) -> None:
    """Runs any role but the gateway and the worker until a signal stops it."""
    check_protection(settings, credentials)
    stopping = asyncio.Event()
    with on_stop(stopping.set):
        async with AsyncExitStack() as closing:
            log = transition_lines(line_writer(settings.log_format, log_stream), options.role, settings.log_level)
            part = await open_part(options, RoleContext(settings, closing, credentials.token, log))
            server = RoleServer(part.routes, part.vitals, credentials.hashes)
            address = await server.start(settings.host, options.port)
            # The server stops first: requests in progress are answered before the role closes what they use.
            closing.push_async_callback(server.stop)
            exempt_what_is_loaded()
            announce_role(options.role, {"http": address})
            await stopping.wait()
        get_logger().info("stopped")


async def serve_gateway(gateway: "PipelineGateway") -> None:
    """Runs the gateway until a signal stops it; it becomes ready even if no scheduler is."""
    stopping = asyncio.Event()
    with on_stop(stopping.set):
        try:
            addresses = await gateway.start()
            exempt_what_is_loaded()
            announce_role("gateway", addresses)
            await stopping.wait()
        finally:
            await gateway.stop()
        get_logger().info("stopped")


def check_protection(settings: Settings, credentials: Credentials) -> None:
    """Raises `InvalidArgumentError` if other machines could reach the role; logs a warning if it has no hashes."""
    if not credentials.hashes:
        message = f"{KNOWN} is not set: any process that can reach this role may call it"
        get_logger().warning("unprotected", message=message)
    if not (settings.insecure or is_loopback(settings.host)):
        raise InvalidArgumentError(
            f"--host must be a loopback address unless --insecure is given, got {settings.host!r};"
            " only the gateway of the pipeline has TLS",
            reason="HOST_UNPROTECTED",
        )


def announce_role(role: str, addresses: dict[str, str]) -> None:
    """Logs that the role is ready, and prints its ready line."""
    get_logger().info("ready", **addresses)
    line = {"event": "ready", "service": role, **addresses, "pid": os.getpid()}
    where = " and ".join(f"{address} ({protocol})" for protocol, address in addresses.items())
    announce(line, f"the {role} is ready on {where}; Ctrl-C stops it")
