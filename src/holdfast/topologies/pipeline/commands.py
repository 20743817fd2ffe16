"""`holdfast pipeline ROLE`: one process of the pipeline topology. A port without a host is on this machine."""

import os
import re
import sys
from collections.abc import Callable, Coroutine, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast import limits
from holdfast.cli.number_options import whole_number
from holdfast.errors import InvalidArgumentError
from holdfast.settings import MEMORY, Settings, masked
from holdfast.settings_sources import load, secret_of

if TYPE_CHECKING:
    from holdfast.observe.log_setup import ByteStream
    from holdfast.topologies.pipeline.roles.callers import Credentials
    from holdfast.topologies.pipeline.worker import WorkerAddresses

app = typer.Typer(
    help="Start one process of the pipeline topology.",
    epilog="`holdfast up --topology pipeline` starts all of them. A process authenticates with SERVICE_TOKEN and"
    " accepts the tokens whose hashes are in SERVICE_TOKEN_HASHES: see docs/topologies/pipeline.md.",
    no_args_is_help=True,
)

_LOCAL = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s/:@,]+):)?(?P<port>[0-9]{1,5})")
_PORT_MAX = 65_535
#: The options whose names differ from those of their settings: of the gateway, and of every role.
_PORT_OPTIONS: Mapping[str, str] = {"http_port": "--port", "port": "--grpc-port"}
_OPTIONS: Mapping[str, str] = {"slots": "--concurrency"}


class QueueKind(StrEnum):
    """The kinds of queue processes."""

    NORMAL = "normal"
    HIGH = "high"


def _port(default: int) -> Any:  # noqa: ANN401 - as typer has it
    return typer.Option(
        "--port",
        parser=whole_number("--port", 0, _PORT_MAX),
        metavar="PORT",
        help=f"Port to listen on (default: {default}).",
        show_default=False,
    )


def _more_port(name: str, text: str) -> Any:  # noqa: ANN401 - as typer has it
    return typer.Option(f"--{name}", parser=whole_number(f"--{name}", 0, _PORT_MAX), metavar="PORT", help=text)


def _times(name: str, text: str) -> Any:  # noqa: ANN401 - as typer has it
    return typer.Option(f"--{name}", parser=whole_number(f"--{name}", 0), metavar="MS", help=text, show_default=False)


Host = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Address to listen on (default: 127.0.0.1).", show_default=False),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Listen on a non-loopback address without TLS and tokens.")]
Database = Annotated[
    str | None,
    typer.Option(help="URL of PostgreSQL; also HOLDFAST_DATABASE.", metavar="URL", show_default=False),
]
LogLevel = Annotated[str | None, typer.Option(help="Lowest level to log (default: info).", metavar="LEVEL")]
LogFormat = Annotated[
    str | None, typer.Option(help="Log format: json, text, or auto (text on a terminal).", metavar="FORMAT")
]
Lifeline = Annotated[bool, typer.Option("--lifeline", hidden=True)]
Normal = Annotated[
    str,
    typer.Option(
        "--normal", metavar="PORTS", help="All queue processes of type normal: comma-separated ports or HOST:PORT."
    ),
]
High = Annotated[
    str,
    typer.Option(
        "--high",
        metavar="PORTS",
        help="All queue processes of type high (jobs of priority 6 to 9): comma-separated ports or HOST:PORT.",
    ),
]


@app.callback()
def pipeline() -> None:
    """Groups the commands."""
    from holdfast.topologies.pipeline.requirements import need_packages

    need_packages()


@app.command()
def gateway(
    *,
    schedulers: Annotated[
        str, typer.Option("--schedulers", metavar="PORTS", help="Schedulers: comma-separated ports or HOST:PORT.")
    ],
    port: Annotated[int | None, _port(8_080)] = None,
    also_port: Annotated[int | None, _more_port("also-port", "Additional port for HTTP.")] = None,
    grpc_port: Annotated[int | None, _more_port("grpc-port", "Port for gRPC (default: 50051).")] = None,
    check_ms: Annotated[
        int, _times("check-ms", "Interval between health checks of the schedulers (default: 1000).")
    ] = 0,
    data: Annotated[str | None, typer.Option(help="Directory that contains tokens.json.", metavar="DIRECTORY")] = None,
    tokens: Annotated[str | None, typer.Option(help="Token file.", metavar="FILE")] = None,
    tls_cert: Annotated[str | None, typer.Option(help="Server certificate, as PEM.", metavar="FILE")] = None,
    tls_key: Annotated[str | None, typer.Option(help="Private key of the certificate, as PEM.", metavar="FILE")] = None,
    tls_client_ca: Annotated[
        str | None, typer.Option(help="CA certificates of clients, as PEM.", metavar="FILE")
    ] = None,
    metrics_port: Annotated[int | None, _more_port("metrics-port", "Additional port for /metrics.")] = None,
    no_http: Annotated[
        bool, typer.Option("--no-http", help="Serve no HTTP, only gRPC and Holdfast's own clients.")
    ] = False,
    reflection: Annotated[bool, typer.Option("--reflection", help="Enable gRPC reflection.")] = False,
    host: Host = None,
    insecure: Insecure = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    has_lifeline: Lifeline = False,
) -> None:
    """Serve HTTP, gRPC and the dashboard to clients.

    The schedulers handle the requests.
    """
    flags: dict[str, object | None] = {
        "http_port": port,
        "port": grpc_port,
        # Without a directory there are no tokens; the gateway never stores jobs.
        "data": data or MEMORY,
        "tokens": tokens,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "tls_client_ca": tls_client_ca,
        "metrics_port": metrics_port,
        "no_http": no_http or None,
        "reflection": reflection or None,
        **_common(host, log_level, log_format, insecure=insecure),
    }
    settings, places, credentials = (
        _settings(flags, _PORT_OPTIONS),
        _addresses("--schedulers", schedulers),
        _credentials(),
    )
    from holdfast.topologies.pipeline.gateway import PipelineGateway
    from holdfast.topologies.pipeline.process import serve_gateway

    async def serve() -> None:
        made = PipelineGateway(
            settings, places, token=credentials.token, also_port=also_port, check_ms=check_ms or 1_000
        )
        await serve_gateway(made)

    _run("gateway", settings, lambda _: serve(), has_lifeline=has_lifeline)


@app.command()
def scheduler(
    *,
    port: Annotated[int, _port(8_081)] = 8_081,
    database: Database = None,
    leader_ms: Annotated[
        int, _times("leader-ms", "Another scheduler fires schedules if the leader is silent for this long.")
    ] = 0,
    host: Host = None,
    insecure: Insecure = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    has_lifeline: Lifeline = False,
) -> None:
    """Write jobs to the database and read them.

    One of the schedulers, the leader, also fires schedules.
    """
    settings = _settings({"database": database, **_common(host, log_level, log_format, insecure=insecure)})
    _serve({"role": "scheduler", "port": port, "leader_ms": leader_ms}, settings, has_lifeline=has_lifeline)


@app.command()
def watcher(
    *,
    exchanges: Annotated[
        str, typer.Option("--exchanges", metavar="PORTS", help="Exchanges: comma-separated ports or HOST:PORT.")
    ],
    port: Annotated[int, _port(9_001)] = 9_001,
    database: Database = None,
    poll_ms: Annotated[int, _times("poll-ms", "Polling interval without notifications (default: 2000).")] = 0,
    visibility_ms: Annotated[
        int, _times("visibility-ms", "Visibility timeout: a claimed job is hidden for this long.")
    ] = 0,
    host: Host = None,
    insecure: Insecure = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    has_lifeline: Lifeline = False,
) -> None:
    """Claim due jobs and send them to the exchanges."""
    settings = _settings({"database": database, **_common(host, log_level, log_format, insecure=insecure)})
    options = {
        "role": "watcher",
        "port": port,
        "exchanges": _addresses("--exchanges", exchanges),
        "poll_ms": poll_ms,
        "visibility_ms": visibility_ms,
    }
    _serve(options, settings, has_lifeline=has_lifeline)


@app.command()
def exchange(
    *,
    normal: Normal,
    high: High = "",
    port: Annotated[int, _port(2_001)] = 2_001,
    host: Host = None,
    insecure: Insecure = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    has_lifeline: Lifeline = False,
) -> None:
    """Route each job to a queue process.

    The job's type and number of attempts decide which one.
    """
    settings = _settings(_common(host, log_level, log_format, insecure=insecure))
    _serve({"role": "exchange", "port": port, **_queues(normal, high)}, settings, has_lifeline=has_lifeline)


@app.command()
def queue(
    *,
    kind: Annotated[QueueKind, typer.Option("--type", help="Kind of the queue process.")] = QueueKind.NORMAL,
    index: Annotated[
        int,
        typer.Option(
            parser=whole_number("--index", 0), metavar="N", help="Index among the queue processes of this kind, from 0."
        ),
    ] = 0,
    port: Annotated[int | None, _port(7_001)] = None,
    host: Host = None,
    insecure: Insecure = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    has_lifeline: Lifeline = False,
) -> None:
    """Hold waiting jobs and lease them to workers."""
    settings = _settings(_common(host, log_level, log_format, insecure=insecure))
    first = 7_101 if kind is QueueKind.HIGH else 7_001
    options = {"role": "queue", "port": first + index if port is None else port, "kind": kind.value, "index": index}
    _serve(options, settings, has_lifeline=has_lifeline)


@app.command()
def coordinator(
    *,
    normal: Normal,
    high: High = "",
    port: Annotated[int, _port(3_000)] = 3_000,
    database: Database = None,
    heartbeat_ms: Annotated[
        int, _times("heartbeat-ms", "Interval between heartbeats of a worker (default: 10000).")
    ] = 0,
    host: Host = None,
    insecure: Insecure = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    has_lifeline: Lifeline = False,
) -> None:
    """Assign queue processes to workers."""
    settings = _settings({"database": database, **_common(host, log_level, log_format, insecure=insecure)})
    options = {"role": "coordinator", "port": port, "heartbeat_ms": heartbeat_ms, **_queues(normal, high)}
    _serve(options, settings, has_lifeline=has_lifeline)


@app.command()
def worker(
    *,
    coordinator_at: Annotated[
        str, typer.Option("--coordinator", metavar="PORT", help="Coordinator: port or HOST:PORT.")
    ],
    concurrency: Annotated[
        int,
        typer.Option(
            "--concurrency",
            "-c",
            parser=whole_number("--concurrency", 1, limits.SLOTS_MAX),
            metavar="N",
            help="Number of jobs to run at a time.",
        ),
    ] = 5,
    port: Annotated[int, _port(10_001)] = 10_001,
    app_path: Annotated[
        str,
        typer.Option("--app", "-A", metavar="MODULE:APP", help="App whose jobs to run, besides the built-in types."),
    ] = "",
    queues: Annotated[str, typer.Option("--queues", "-Q", metavar="A,B", help="Queues to serve (default: all).")] = "",
    worker_id: Annotated[
        str, typer.Option(metavar="NAME", help="Name of this worker (default: made from the host name).")
    ] = "",
    database: Database = None,
    lease_ms: Annotated[
        int, _times("lease-ms", "Lease length: a worker silent for this long loses the job (default: 30000).")
    ] = 0,
    host: Host = None,
    insecure: Insecure = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    has_lifeline: Lifeline = False,
) -> None:
    """Take jobs from the assigned queue processes and run them."""
    flags: dict[str, object | None] = {
        "database": database,
        "lease_ms": lease_ms or None,
        "slots": concurrency,
        "app": app_path or None,
    }
    flags |= {"worker_id": worker_id or None, **_common(host, log_level, log_format, insecure=insecure)}
    settings = _with_database(_settings(flags))
    (where,) = _addresses("--coordinator", coordinator_at)
    from holdfast.topologies.pipeline.worker import WorkerAddresses

    _work(settings, WorkerAddresses(port, where, _credentials()), queues, has_lifeline=has_lifeline)


def _work(settings: Settings, place: "WorkerAddresses", queues: str, *, has_lifeline: bool) -> None:
    """Runs a worker to its end."""
    from holdfast.cli.worker import end_process_of, load_handlers, queue_names, run_to_the_end
    from holdfast.observe import log_setup
    from holdfast.observe.log_stream import BackgroundStream
    from holdfast.process.lifeline import lifeline
    from holdfast.topologies.pipeline.worker import work
    from holdfast.worker.start_report import declared_by

    if has_lifeline:
        lifeline()
    names = queue_names(queues)
    # Child processes must not inherit secrets of the environment.
    os.environ.pop("HOLDFAST_DATABASE", None)
    app, handlers = load_handlers(settings.app)
    declared = declared_by(app, settings.app, handlers.keys())
    stream = BackgroundStream(sys.stderr.fileno())
    log_setup.configure(service="worker", level=settings.log_level, log_format=settings.log_format, stream=stream)
    try:
        ended = run_to_the_end(work(settings, place, handlers, names, declared, stream))
    finally:
        if app is not None and hasattr(app, "close"):
            app.close()
        stream.close()
    end_process_of(ended)


def _serve(options: dict[str, Any], settings: Settings, *, has_lifeline: bool) -> None:
    from holdfast.topologies.pipeline.process import serve
    from holdfast.topologies.pipeline.role_table import RoleOptions

    made, credentials = RoleOptions(**options), _credentials()
    if made.role in {"scheduler", "watcher", "coordinator"}:
        settings = _with_database(settings)
    _run(made.role, settings, lambda stream: serve(made, settings, credentials, stream), has_lifeline=has_lifeline)


def _run(
    role: str,
    settings: Settings,
    program: Callable[["ByteStream"], Coroutine[Any, Any, None]],
    *,
    has_lifeline: bool,
) -> None:
    """Runs the program; its argument is the log stream."""
    import uvloop

    from holdfast.observe import log_setup
    from holdfast.observe.log_stream import BackgroundStream

    if has_lifeline:
        from holdfast.process.lifeline import lifeline

        lifeline()
    stream = BackgroundStream(sys.stderr.fileno())
    log_setup.configure(service=role, level=settings.log_level, log_format=settings.log_format, stream=stream)
    try:
        uvloop.run(program(stream))
    finally:
        stream.close()


def _common(
    host: str | None, log_level: str | None, log_format: str | None, *, insecure: bool
) -> dict[str, object | None]:
    return {"host": host, "log_level": log_level, "log_format": log_format, "insecure": insecure or None}


def _settings(flags: dict[str, object | None], options: Mapping[str, str] = _OPTIONS) -> Settings:
    return load(Settings, flags=flags, environment=os.environ, folder=Path.cwd(), options=options).settings


def _credentials() -> "Credentials":
    """Reads the service tokens; removes its own one from the environment, which child processes inherit."""
    from holdfast.server.auth.service_tokens import KNOWN, OWN
    from holdfast.topologies.pipeline.roles.callers import credentials_in

    credentials = credentials_in({name: secret_of(name, os.environ) for name in (OWN, KNOWN)})
    os.environ.pop(OWN, None)
    return credentials


def _with_database(settings: Settings) -> Settings:
    if not settings.database:
        message = "no database is given; set --database or HOLDFAST_DATABASE to the URL of PostgreSQL"
        raise InvalidArgumentError(message, reason="DATABASE_MISSING")
    return settings


def _queues(normal: str, high: str) -> dict[str, tuple[str, ...]]:
    return {"normal": _addresses("--normal", normal), "high": _addresses("--high", high) if high else ()}


def _addresses(option: str, text: str) -> tuple[str, ...]:
    """Parses `8081,8082` or `host:8081`; a port without a host is on this machine."""
    found = []
    for part in text.split(","):
        match = _ADDRESS.fullmatch(part.strip())
        if match is None or not 0 < int(match["port"]) <= _PORT_MAX:
            message = f"{option} must be comma-separated ports or host:port addresses, got {masked(text)!r}"
            raise InvalidArgumentError(message, reason="ADDRESS_INVALID")
        found.append(f"{match['host'] or _LOCAL}:{match['port']}")
    return tuple(found)
