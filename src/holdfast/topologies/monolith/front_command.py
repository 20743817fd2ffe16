"""`holdfast front`: HTTP and the dashboard for several nodes."""

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.connection import Connect, access_to
from holdfast.cli.server import of_a_gateway, run_program
from holdfast.errors import InvalidArgumentError
from holdfast.settings import MEMORY, ClientSettings, Settings, addresses_of
from holdfast.settings_sources import load

if TYPE_CHECKING:
    from holdfast.observe.log_setup import ByteStream
    from holdfast.topologies.monolith.front import NodeAddresses

#: The settings of a front, which stores nothing.
_SETTINGS = (
    *("host", "http_port", "metrics_port", "tokens", "tls_cert", "tls_key", "tls_client_ca", "allowed_hosts"),
    *("rate_limit", "insecure", "log_level", "log_format"),
)


def front(
    connect: Connect = None,
    socket: Annotated[list[Path] | None, typer.Option("--socket", hidden=True)] = None,
    has_lifeline: Annotated[bool, typer.Option("--lifeline", hidden=True)] = False,
    is_early: Annotated[bool, typer.Option("--early", hidden=True)] = False,
    **flags: object,
) -> None:
    """Serves HTTP and the dashboard for all nodes, until TERM or INT."""
    told = {**flags, "data": MEMORY, "no_http": False, "port": "0"}
    settings = load(Settings, flags=told, environment=os.environ, folder=Path.cwd()).settings
    nodes = _nodes(connect, socket or [])
    from holdfast.process.lifeline import lifeline
    from holdfast.topologies.monolith.front import serve

    if has_lifeline:
        lifeline()

    async def program(settings: Settings, log_stream: "ByteStream") -> None:
        del log_stream  # a front logs no transitions
        await serve(settings, nodes, is_early=is_early)

    run_program(settings, program)


def _nodes(connect: str | None, sockets: list[Path]) -> "NodeAddresses":
    from holdfast.topologies.monolith.front import NodeAddresses

    if sockets:
        return NodeAddresses(sockets=sockets)
    loaded = load(ClientSettings, flags={"connect": connect}, environment=os.environ, folder=Path.cwd()).settings
    addresses = addresses_of(loaded.connect)
    if not addresses:
        message = "--connect must be the addresses of all nodes in their order: HOST:PORT,HOST:PORT"
        raise InvalidArgumentError(message, reason="CONNECT_INVALID")
    return NodeAddresses(addresses=addresses, access=access_to(loaded))


def _signature() -> inspect.Signature:
    """Returns the parameters above and the settings of a front."""
    own = [one for one in inspect.signature(front).parameters.values() if one.kind is not one.VAR_KEYWORD]
    return inspect.Signature([*own, *of_a_gateway(_SETTINGS)])


# typer reads the signature; mypy does not know that functions may carry one.
front.__signature__ = _signature()  # type: ignore[attr-defined]
