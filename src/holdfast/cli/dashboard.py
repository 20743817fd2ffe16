"""`holdfast dashboard`: the dashboard, HTTP and metrics for a directory, a server, nodes or an ensemble."""

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
    from holdfast.observe.log_setup import ByteStream
    from holdfast.topologies.dashboard import Place

#: The settings that it uses besides the port; those of retention apply while it serves a directory.
_SETTINGS = (
    *("host", "metrics_port", "tokens", "tls_cert", "tls_key", "tls_client_ca", "allowed_hosts", "rate_limit"),
    *("retain_ms", "retain_failed_ms", "retain_jobs", "retain_bytes", "insecure", "log_level", "log_format"),
)


def dashboard(
    where: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE",
            help="Where the jobs are: a data directory, a server, all nodes in their order (HOST:PORT,HOST:PORT), or"
            " zk://HOSTS (default: HOLDFAST_CONNECT).",
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
    """Serves HTTP and the dashboard for jobs that are stored elsewhere, until TERM or INT."""
    client = load(
        ClientSettings,
        flags={"connect": where},
        environment=os.environ,
        folder=Path.cwd(),
        options={"connect": "SOURCE"},
    ).settings
    place = _place(client.connect)
    data = str(place) if isinstance(place, Path) else MEMORY
    told = {**flags, "data": data, "http_port": port, "no_http": False, "port": "0"}
    options = {"http_port": "--port"}
    settings = load(Settings, flags=told, environment=os.environ, folder=Path.cwd(), options=options).settings
    from holdfast.topologies.dashboard import serve

    async def program(settings: Settings, log_stream: "ByteStream") -> None:
        del log_stream  # the dashboard logs no transitions
        await serve(settings, place, access_to(client))

    run_program(settings, program)


def _place(target: str) -> "Place":
    """Resolves the place as every command does; a directory must contain jobs."""
    place = place_of(target, "SOURCE")
    if not isinstance(place, Path):
        return place
    check_directory(place.parent, may_create=False)
    return place.parent


def _signature() -> inspect.Signature:
    """Returns the parameters above and the settings."""
    own = [one for one in inspect.signature(dashboard).parameters.values() if one.kind is not one.VAR_KEYWORD]
    return inspect.Signature([*own, *of_a_gateway(_SETTINGS)])


# typer reads the signature; mypy does not know that functions may carry one.
dashboard.__signature__ = _signature()  # type: ignore[attr-defined]
