"""`holdfast dashboard`: the dashboard, HTTP and metrics beside a directory, a server, nodes or an ensemble."""

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.connection import access_to, check_directory, place_of
from holdfast.cli.server import of_a_gateway, run_program
from holdfast.settings import FIELDS, MEMORY, ClientSettings, Settings, purpose
from holdfast.settings_sources import load

if TYPE_CHECKING:
    from holdfast.observe.logging import ByteStream
    from holdfast.topologies.dashboard import Place

EPILOG = (
    "It shows a server the token of the URL or HOLDFAST_TOKEN, and acts with it for every caller; callers show it"
    " theirs, from --tokens or the tokens.json of the directory."
)
#: The settings that it uses beside the port; it retains jobs of a directory while it serves that directory.
_SETTINGS = (
    *("host", "metrics_port", "tokens", "tls_cert", "tls_key", "tls_client_ca", "allowed_hosts", "rate_limit"),
    *("retain_ms", "retain_failed_ms", "retain_jobs", "retain_bytes", "insecure", "log_level", "log_format"),
)


def dashboard(
    where: Annotated[
        str | None,
        typer.Argument(
            metavar="PLACE",
            help="Where the jobs are: a directory, a server, all nodes (HOST:PORT,HOST:PORT) in their order, or zk://HOSTS"
            " (default: HOLDFAST_CONNECT).",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        str | None,
        typer.Option(
            *("--port", "--http-port"),
            metavar="PORT",
            help=f"{purpose('http_port')} (default: {FIELDS['http_port'].default})",
            show_default=False,
        ),
    ] = None,
    **flags: object,
) -> None:
    """HTTP and the dashboard over jobs that are kept elsewhere, until TERM or INT."""
    client = load(ClientSettings, flags={"connect": where}, environment=os.environ, folder=Path.cwd()).settings
    place = _place(client.connect)
    data = str(place) if isinstance(place, Path) else MEMORY
    told = {**flags, "data": data, "http_port": port, "no_http": False, "port": "0"}
    settings = load(Settings, flags=told, environment=os.environ, folder=Path.cwd()).settings
    from holdfast.topologies.dashboard import serve

    async def program(settings: Settings, log_stream: "ByteStream") -> None:
        del log_stream  # it logs no transitions
        await serve(settings, place, access_to(client))

    run_program(settings, program)


def _place(target: str) -> "Place":
    """As every command understands it; a directory must hold jobs."""
    place = place_of(target, "the place")
    if not isinstance(place, Path):
        return place
    check_directory(place.parent, may_create=False)
    return place.parent


def _signature() -> inspect.Signature:
    """The parameters above, and the settings."""
    own = [one for one in inspect.signature(dashboard).parameters.values() if one.kind is not one.VAR_KEYWORD]
    return inspect.Signature([*own, *of_a_gateway(_SETTINGS)])


# typer reads the signature; mypy does not know that functions may carry one.
dashboard.__signature__ = _signature()  # type: ignore[attr-defined]
