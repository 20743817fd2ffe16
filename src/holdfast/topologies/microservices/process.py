"""`holdfast service ROLE`: one service of the microservices topology in this process, until TERM or INT.

It says that it is ready once it is configured and bound. What protects a service are the tokens of those who may call
it; without them it says so, and listens where only this machine can reach it.
"""

import asyncio
import os
from collections.abc import Mapping

from holdfast.errors import InvalidArgumentError
from holdfast.observe.logging import ByteStream
from holdfast.observe.logs import get_logger
from holdfast.process.ready_line import announce
from holdfast.process.signals import on_stop
from holdfast.settings import is_loopback
from holdfast.topologies.microservices.role_table import ServiceOptions, open_service
from holdfast.topologies.microservices.services.environment import Environment
from holdfast.topologies.microservices.services.roles import Fatal


async def serve(options: ServiceOptions, environment: Environment, log_stream: ByteStream) -> None:
    """Serves until TERM or INT; errors say what to do, and change nothing."""
    check_protection(options, environment)
    stopping = asyncio.Event()
    with on_stop(stopping.set):
        service = open_service(options, environment, _ending(log_stream))
        address = await service.start(options.host)
        _announce(options, getattr(service, "addresses", {"grpc": address}))
        await stopping.wait()
        await service.stop()
        get_logger().info("stopped")


def check_protection(options: ServiceOptions, environment: Environment) -> None:
    """`InvalidArgumentError` if strangers could call what nothing protects; a warning if only this machine could."""
    is_gateway = options.role == "gateway"
    if environment.token if is_gateway else environment.token_hashes:
        return
    variable = "SERVICE_TOKEN" if is_gateway else "SERVICE_TOKEN_HASHES"
    get_logger().warning("unprotected", message=f"there is no {variable}: services do not know who calls them")
    # Who may call a gateway is another question, and asked before it listens.
    if not (is_gateway or options.is_insecure or is_loopback(options.host)):
        raise InvalidArgumentError(
            f"expected host to be a loopback address unless --insecure is given, got {options.host!r};"
            " without SERVICE_TOKEN_HASHES anybody could call",
            reason="HOST_UNPROTECTED",
        )


def _announce(options: ServiceOptions, addresses: Mapping[str, str]) -> None:
    get_logger().info("ready", **addresses)
    data = {"data": str(options.data.absolute())} if options.data else {}
    line = {"event": "ready", "service": options.role, **addresses, **data, "pid": os.getpid()}
    announce(line, f"the {options.role} service is ready on {addresses['grpc']}; Ctrl-C stops it")


def _ending(log_stream: ByteStream) -> Fatal:
    def die(error: BaseException) -> None:
        """What is durable, or what goes on, is not known any more: nothing may be answered by this process."""
        event = "journal_failed" if isinstance(error, OSError) else "failed"
        get_logger().critical(event, message=str(error), exc_info=error)
        log_stream.close()
        os._exit(70)

    return die
