"""`holdfast pipeline ROLE`: one process of the pipeline topology. A port that is named alone is on this machine."""

import os
import re
import sys
from collections.abc import Callable, Coroutine
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.errors import InvalidArgumentError
from holdfast.settings import MEMORY, Settings, masked
from holdfast.settings_sources import load, secret_of

if TYPE_CHECKING:
    from holdfast.observe.logging import ByteStream
    from holdfast.topologies.pipeline.roles.callers import Credentials

app = typer.Typer(
    help="Start one process of the pipeline topology.",
    epilog="`holdfast up --topology pipeline` starts all of them. SERVICE_TOKEN is what a process shows to the others,"
    " SERVICE_TOKEN_HASHES says whom it answers: see docs/topologies/pipeline.md.",
    no_args_is_help=True,
)

_LOCAL = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s/:@,]+):)?(?P<port>[0-9]{1,5})")
_PORT_MAX = 65_535


class QueueKind(StrEnum):
    """Which jobs a queue process is for."""

    NORMAL = "normal"
    HIGH = "high"


def _port(default: int) -> Any:  # noqa: ANN401 - as typer has it
    return typer.Option(
        "--port", min=0, max=_PORT_MAX, help=f"The port to listen on (default: {default}).", show_default=False
    )


def _times(name: str, text: str) -> Any:  # noqa: ANN401 - as typer has it
    return typer.Option(f"--{name}", metavar="MS", min=0, help=text, show_default=False)


Host = Annotated[str | None, typer.Option(help="The address to listen on (default: 127.0.0.1).", show_default=False)]
Insecure = Annotated[bool, typer.Option("--insecure", help="Listen beyond loopback, where nothing protects the jobs.")]
Database = Annotated[
    str | None,
    typer.Option(help="Where PostgreSQL is; also HOLDFAST_DATABASE.", metavar="URL", show_default=False),
]
LogLevel = Annotated[str | None, typer.Option(help="What is logged (default: info).", metavar="LEVEL")]
LogFormat = Annotated[str | None, typer.Option(help="json, text, or auto: text on a terminal.", metavar="FORMAT")]
Lifeline = Annotated[bool, typer.Option("--lifeline", hidden=True)]
Normal = Annotated[str, typer.Option("--normal", metavar="PORTS", help="Every queue process of the normal kind.")]
High = Annotated[str, typer.Option("--high", metavar="PORTS", help="Every queue process of the high kind.")]


@app.callback()
def pipeline() -> None:
    """Groups the commands."""
    from holdfast.topologies.pipeline.requirements import need_packages

    need_packages()


@app.command()
def gateway(
    *,
    schedulers: Annotated[str, typer.Option("--schedulers", metavar="PORTS", help="Where the schedulers are.")],
    port: Annotated[int | None, _port(8_080)] = None,
    also_port: Annotated[int | None, typer.Option(help="One more port for HTTP.", max=_PORT_MAX)] = None,
    grpc_port: Annotated[int | None, typer.Option(help="The port for gRPC (default: 50051).", max=_PORT_MAX)] = None,
    check_ms: Annotated[
        int, _times("check-ms", "How often schedulers are asked for their health (default: 1000).")
    ] = 0,
    data: Annotated[str | None, typer.Option(help="Where tokens.json is, if anywhere.", metavar="DIRECTORY")] = None,
    tokens: Annotated[str | None, typer.Option(help="The file of tokens.", metavar="FILE")] = None,
    tls_cert: Annotated[str | None, typer.Option(help="The certificate, as PEM.", metavar="FILE")] = None,
    tls_key: Annotated[str | None, typer.Option(help="Its key, as PEM.", metavar="FILE")] = None,
    tls_client_ca: Annotated[str | None, typer.Option(help="Who signs clients' certificates.", metavar="FILE")] = None,
    metrics_port: Annotated[int | None, typer.Option(help="One more port for /metrics.", max=_PORT_MAX)] = None,
    no_http: Annotated[bool, typer.Option("--no-http", help="Serve gRPC alone.")] = False,
    reflection: Annotated[bool, typer.Option("--reflection", help="Let clients ask which calls there are.")] = False,
    host: Host = None,
    insecure: Insecure = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    has_lifeline: Lifeline = False,
) -> None:
    """What clients reach: HTTP, gRPC and the dashboard, over the schedulers."""
    flags: dict[str, object | None] = {
        "http_port": port,
        "port": grpc_port,
        # Without a directory there are no tokens; jobs are never kept here.
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
    settings, places, credentials = _settings(flags), _addresses("--schedulers", schedulers), _credentials()
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
    leader_ms: Annotated[int, _times("leader-ms", "How long whoever fires schedules may be silent.")] = 0,
    host: Host = None,
    insecure: Insecure = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    has_lifeline: Lifeline = False,
) -> None:
    """Writes jobs into the database and reads them from there; one of all schedulers fires what is due by time."""
    settings = _settings({"database": database, **_common(host, log_level, log_format, insecure=insecure)})
    _serve({"role": "scheduler", "port": port, "leader_ms": leader_ms}, settings, has_lifeline=has_lifeline)


@app.command()
def watcher(
    *,
    exchanges: Annotated[str, typer.Option("--exchanges", metavar="PORTS", help="Where the exchanges are.")],
    port: Annotated[int, _port(9_001)] = 9_001,
    database: Database = None,
    poll_ms: Annotated[int, _times("poll-ms", "How often to look, even if nothing was heard (default: 2000).")] = 0,
    visibility_ms: Annotated[int, _times("visibility-ms", "How long a claimed job is out of sight.")] = 0,
    host: Host = None,
    insecure: Insecure = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    has_lifeline: Lifeline = False,
) -> None:
    """Claims jobs that are due, and hands them to the exchanges."""
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
    """Brings each job to the queue process that its type and its tries lead to."""
    settings = _settings(_common(host, log_level, log_format, insecure=insecure))
    _serve({"role": "exchange", "port": port, **_queues(normal, high)}, settings, has_lifeline=has_lifeline)


@app.command()
def queue(
    *,
    kind: Annotated[QueueKind, typer.Option("--type", help="Which jobs it is for.")] = QueueKind.NORMAL,
    index: Annotated[int, typer.Option(help="Which of its kind it is, from 0 on.", min=0)] = 0,
    port: Annotated[int | None, _port(7_001)] = None,
    host: Host = None,
    insecure: Insecure = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    has_lifeline: Lifeline = False,
) -> None:
    """Holds jobs that wait for a worker, and leases them."""
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
    heartbeat_ms: Annotated[int, _times("heartbeat-ms", "How often workers say that they live (default: 10000).")] = 0,
    host: Host = None,
    insecure: Insecure = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    has_lifeline: Lifeline = False,
) -> None:
    """Says which worker takes from which queue processes."""
    settings = _settings({"database": database, **_common(host, log_level, log_format, insecure=insecure)})
    options = {"role": "coordinator", "port": port, "heartbeat_ms": heartbeat_ms, **_queues(normal, high)}
    _serve(options, settings, has_lifeline=has_lifeline)


@app.command()
def worker(
    *,
    coordinator_at: Annotated[str, typer.Option("--coordinator", metavar="PORT", help="Where the coordinator is.")],
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, help="How many jobs at a time.")] = 5,
    port: Annotated[int, _port(10_001)] = 10_001,
    app_path: Annotated[
        str, typer.Option("--app", "-A", metavar="MODULE:APP", help="Whose jobs to run, beside the built-in types.")
    ] = "",
    queues: Annotated[
        str, typer.Option("--queues", "-Q", metavar="A,B", help="The queues to serve (default: all).")
    ] = "",
    worker_id: Annotated[str, typer.Option(metavar="NAME", help="A name of its own.")] = "",
    database: Database = None,
    lease_ms: Annotated[int, _times("lease-ms", "How long a job is its own without a word (default: 30000).")] = 0,
    host: Host = None,
    insecure: Insecure = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    has_lifeline: Lifeline = False,
) -> None:
    """Takes jobs from its queue processes and runs them."""
    flags: dict[str, object | None] = {
        "database": database,
        "lease_ms": lease_ms or None,
        "slots": concurrency,
        "app": app_path or None,
    }
    flags |= {"worker_id": worker_id or None, **_common(host, log_level, log_format, insecure=insecure)}
    settings = _with_database(_settings(flags))
    (where,) = _addresses("--coordinator", coordinator_at)
    from holdfast.topologies.pipeline.worker import WorkerPlace
    from holdfast.topologies.pipeline.worker_command import work

    work(settings, WorkerPlace(port, where, _credentials()), queues, has_lifeline=has_lifeline)


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
    """Runs the program, which is given the stream that its log goes to."""
    import uvloop

    from holdfast.observe import logging
    from holdfast.observe.log_stream import BackgroundStream

    if has_lifeline:
        from holdfast.process.lifeline import die_with_parent, lifeline

        die_with_parent()
        lifeline()
    stream = BackgroundStream(sys.stderr.fileno())
    logging.configure(service=role, level=settings.log_level, log_format=settings.log_format, stream=stream)
    try:
        uvloop.run(program(stream))
    finally:
        stream.close()


def _common(
    host: str | None, log_level: str | None, log_format: str | None, *, insecure: bool
) -> dict[str, object | None]:
    return {"host": host, "log_level": log_level, "log_format": log_format, "insecure": insecure or None}


def _settings(flags: dict[str, object | None]) -> Settings:
    return load(Settings, flags=flags, environment=os.environ, folder=Path.cwd()).settings


def _credentials() -> "Credentials":
    """Those of the environment, or of the files that it names; they are not for children of this process."""
    from holdfast.server.auth.service_tokens import KNOWN, OWN
    from holdfast.topologies.pipeline.roles.callers import credentials_in

    credentials = credentials_in({name: secret_of(name, os.environ) for name in (OWN, KNOWN)})
    os.environ.pop(OWN, None)
    return credentials


def _with_database(settings: Settings) -> Settings:
    if not settings.database:
        message = "expected --database or HOLDFAST_DATABASE to say where PostgreSQL is, got nothing"
        raise InvalidArgumentError(message, reason="DATABASE_MISSING")
    return settings


def _queues(normal: str, high: str) -> dict[str, tuple[str, ...]]:
    return {"normal": _addresses("--normal", normal), "high": _addresses("--high", high) if high else ()}


def _addresses(option: str, text: str) -> tuple[str, ...]:
    """`8081,8082` or `host:8081`; a port alone is on this machine."""
    found = []
    for part in text.split(","):
        match = _ADDRESS.fullmatch(part.strip())
        if match is None or not 0 < int(match["port"]) <= _PORT_MAX:
            message = f"expected {option} to be ports or host:port with commas, got {masked(text)!r}"
            raise InvalidArgumentError(message, reason="ADDRESS_INVALID")
        found.append(f"{match['host'] or _LOCAL}:{match['port']}")
    return tuple(found)
