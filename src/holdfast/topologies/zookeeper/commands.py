"""`holdfast zookeeper ROLE`: one process of the zookeeper topology, for an existing ensemble."""

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.server import of_a_gateway, run_program
from holdfast.cli.worker import worker as start_worker
from holdfast.errors import InvalidArgumentError
from holdfast.settings import MEMORY, Settings
from holdfast.settings_sources import load

if TYPE_CHECKING:
    from holdfast.observe.log_setup import ByteStream
    from holdfast.topologies.zookeeper.ensemble_url import Ensemble

app = typer.Typer(
    help="Start one process of the zookeeper topology.",
    epilog="`holdfast up --topology zookeeper` starts all of them; docs/topologies/zookeeper.md describes them.",
    no_args_is_help=True,
)

#: The settings of a gateway, which stores nothing.
_SETTINGS = (
    *("host", "port", "http_port", "no_http", "metrics_port", "tokens", "tls_cert", "tls_key", "tls_client_ca"),
    *("allowed_hosts", "rate_limit", "grpc_connections", "reflection", "insecure", "log_level", "log_format"),
    *("retain_ms", "retain_failed_ms"),
)

Hosts = Annotated[
    str | None,
    typer.Option(
        "--ensemble",
        metavar="HOSTS",
        help="ZooKeeper ensemble: zk1:2181,zk2:2181,zk3:2181/holdfast; also HOLDFAST_ENSEMBLE.",
        show_default=False,
    ),
]
Lifeline = Annotated[bool, typer.Option("--lifeline", hidden=True)]


@app.callback()
def zookeeper() -> None:
    """Groups the commands."""


def gateway(ensemble: Hosts = None, has_lifeline: Lifeline = False, **flags: object) -> None:
    """Serve the dashboard, HTTP and gRPC, until TERM or INT."""
    told = {**flags, "ensemble": ensemble, "data": MEMORY}
    settings = load(Settings, flags=told, environment=os.environ, folder=Path.cwd()).settings
    place = _place(settings)
    from holdfast.process.lifeline import lifeline

    if has_lifeline:
        lifeline()

    async def program(settings: Settings, log_stream: "ByteStream") -> None:
        del log_stream  # transitions are logged like everything else
        from holdfast.topologies.zookeeper.gateway import serve

        await serve(settings, place)

    run_program(settings, program)


@app.command()
def worker(
    ensemble: Hosts = None,
    app_path: Annotated[
        str | None,
        typer.Option("--app", "-A", metavar="MODULE:APP", help="App whose jobs to run, besides the built-in types."),
    ] = None,
    queues: Annotated[
        str | None, typer.Option("--queues", "-Q", metavar="A,B", help="Queues to serve (default: all).")
    ] = None,
    slots: Annotated[
        str | None, typer.Option("--slots", "-c", metavar="N", help="Number of jobs to run at a time.")
    ] = None,
    worker_id: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of this worker (default: made from the host name).")
    ] = None,
    lease_ms: Annotated[
        str | None,
        typer.Option(
            metavar="MS", help="Session timeout: a worker silent for this long loses its jobs (default: 10000)."
        ),
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="Lowest level to log (default: info).", metavar="LEVEL")] = None,
    log_format: Annotated[
        str | None, typer.Option(help="Log format: json, text, or auto (text on a terminal).", metavar="FORMAT")
    ] = None,
) -> None:
    """Run jobs, like `holdfast worker --connect zk://HOSTS`."""
    told: dict[str, object] = {"ensemble": ensemble, "lease_ms": lease_ms}
    loaded = load(Settings, flags=told, environment=os.environ, folder=Path.cwd())
    place = _place(loaded.settings)
    if loaded.origins["lease_ms"] != "default":
        import msgspec

        place = msgspec.structs.replace(place, lease_ms=loaded.settings.lease_ms)
    start_worker(
        app=app_path,
        connect=place.url,
        queues=queues,
        slots=slots,
        worker_id=worker_id,
        log_level=log_level,
        log_format=log_format,
    )


def _place(settings: Settings) -> "Ensemble":
    from holdfast.topologies.zookeeper.ensemble_url import ensemble_of

    if not settings.ensemble:
        message = "no ensemble is given; set --ensemble or HOLDFAST_ENSEMBLE to the hosts of ZooKeeper"
        raise InvalidArgumentError(message, reason="ENSEMBLE_MISSING")
    return ensemble_of(settings.ensemble)


def _signature() -> inspect.Signature:
    """Returns the parameters above and the settings of a gateway."""
    own = [one for one in inspect.signature(gateway).parameters.values() if one.kind is not one.VAR_KEYWORD]
    return inspect.Signature([*own, *of_a_gateway(_SETTINGS)])


# typer reads the signature; mypy does not know that functions may carry one.
gateway.__signature__ = _signature()  # type: ignore[attr-defined]
app.command()(gateway)
