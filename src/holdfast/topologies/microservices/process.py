"""`holdfast service ROLE`: one service of the microservices topology in this process, until TERM or INT.

The service announces that it is ready once it is configured and bound. Service tokens authenticate its callers; without
them it logs a warning, and listens on loopback addresses only, unless --insecure is given.
"""

import asyncio
import contextlib
import os
from collections.abc import Mapping

from holdfast.errors import InvalidArgumentError
from holdfast.observe.log_setup import ByteStream
from holdfast.observe.logs import get_logger
from holdfast.process.ready_line import announce
from holdfast.process.signals import on_stop
from holdfast.server.startup import StartStoppedError
from holdfast.settings import is_loopback
from holdfast.topologies.microservices.role_table import ServiceOptions, open_service
from holdfast.topologies.microservices.services.environment import Environment
from holdfast.topologies.microservices.services.roles import Fatal


async def serve(options: ServiceOptions, environment: Environment, log_stream: ByteStream) -> None:
    """Serves until TERM or INT; an error at the start says what to do, and changes nothing."""
    check_protection(options, environment)
    stopping = asyncio.Event()

    def stop() -> None:  # signals are handled at the first await, when there is a service
        stopping.set()
        service.give_up()

    with on_stop(stop), contextlib.suppress(StartStoppedError):
        service = open_service(options, environment, _ending(log_stream), lambda address: _listening(options, address))
        address = await service.start(options.host)
        _announce(options, getattr(service, "addresses", {"grpc": address}))
        await stopping.wait()
        await service.stop()
        get_logger().info("stopped")


def check_protection(options: ServiceOptions, environment: Environment) -> None:
    """Warns if callers are not authenticated; `InvalidArgumentError` if other machines could then call."""
    is_gateway = options.role == "gateway"
    if environment.token if is_gateway else environment.token_hashes:
        return
    variable = "SERVICE_TOKEN" if is_gateway else "SERVICE_TOKEN_HASHES"
    get_logger().warning("unprotected", message=f"{variable} is not set: calls between services are not authenticated")
    # `protect` checks the access of clients to a gateway, before it listens.
    if not (is_gateway or options.is_insecure or is_loopback(options.host)):
        raise InvalidArgumentError(
            f"--host must be a loopback address unless --insecure is given, got {options.host!r};"
            " without SERVICE_TOKEN_HASHES callers are not authenticated",
            reason="HOST_UNPROTECTED",
        )


def _listening(options: ServiceOptions, address: str) -> None:
    """Tells the supervisor the address before the service is ready."""
    line = {"event": "listening", "service": options.role, "grpc": address, "pid": os.getpid()}
    announce(line, f"the {options.role} service listens on {address}, and is not ready yet")


def _announce(options: ServiceOptions, addresses: Mapping[str, str]) -> None:
    get_logger().info("ready", **addresses)
    data = {"data": str(options.data.absolute())} if options.data else {}
    line = {"event": "ready", "service": options.role, **addresses, **data, "pid": os.getpid()}
    announce(line, f"the {options.role} service is ready on {addresses['grpc']}; Ctrl-C stops it")


def _ending(log_stream: ByteStream) -> Fatal:
    def die(error: BaseException) -> None:
        """Exits at once: the durable state is unknown, so this process must not send any reply."""
        event = "journal_failed" if isinstance(error, OSError) else "failed"
        get_logger().critical(event, message=str(error), exc_info=error)
        log_stream.close()
        os._exit(70)

    return die
