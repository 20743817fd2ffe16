"""`holdfast service ROLE`: one service of the microservices topology; environment variables configure it."""

import inspect
import os
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.server import of_a_gateway
from holdfast.errors import InvalidArgumentError
from holdfast.settings import MEMORY, Settings
from holdfast.settings_sources import load, secret_of

if TYPE_CHECKING:
    from holdfast.observe.log_setup import ByteStream
    from holdfast.topologies.microservices.services.environment import Environment


class ServiceRole(StrEnum):
    """The services that a process can run."""

    GATEWAY = "gateway"
    JOB = "job"
    QUEUE = "queue"
    COORDINATOR = "coordinator"
    RESULT = "result"
    WORKER = "worker"


class LogFormat(StrEnum):
    """The formats of log lines."""

    AUTO = "auto"
    JSON = "json"
    TEXT = "text"


#: Variables that can be read from a file, which SERVICE_TOKEN_FILE and so on name.
_SECRETS = ("SERVICE_TOKEN", "SERVICE_TOKEN_HASHES")
_EVERY = frozenset(ServiceRole)
#: Settings that are options of the gateway.
_OF_THE_GATEWAY = (
    *("reflection", "tokens", "tls_cert", "tls_key", "tls_client_ca", "allowed_hosts", "rate_limit", "metrics_port"),
    "grpc_connections",
)
#: The roles that accept an option; it is an error for the others.
_CONCERNS = {
    **dict.fromkeys(_OF_THE_GATEWAY, frozenset({ServiceRole.GATEWAY})),
    "data": frozenset({ServiceRole.JOB, ServiceRole.QUEUE, ServiceRole.RESULT}),
    "host": _EVERY - {ServiceRole.WORKER},
    "insecure": _EVERY - {ServiceRole.WORKER},
    "early": _EVERY - {ServiceRole.WORKER, ServiceRole.COORDINATOR},
    "app": frozenset({ServiceRole.WORKER}),
    "slots": frozenset({ServiceRole.WORKER}),
    "queues": frozenset({ServiceRole.WORKER}),
}


def service(
    role: Annotated[
        ServiceRole,
        typer.Argument(
            metavar="ROLE",
            help="Service to start: gateway, job, queue, coordinator, result or worker.",
            show_default=False,
        ),
    ],
    data: Annotated[
        Path | None,
        typer.Option(help="Data directory of job, queue or result (default: in memory).", metavar="DIRECTORY"),
    ] = None,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address to listen on (default: 127.0.0.1).")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen on a non-loopback address without TLS and tokens.")
    ] = False,
    app: Annotated[
        str | None, typer.Option("--app", "-A", metavar="MODULE:APP", help="App whose jobs the worker runs.")
    ] = None,
    slots: Annotated[
        str | None,
        typer.Option("--slots", "-c", metavar="N", help="Number of jobs to run at a time; overrides WORKER_SLOTS."),
    ] = None,
    queues: Annotated[
        str | None,
        typer.Option("--queues", "-Q", metavar="A,B", help="Queues that the worker serves (default: all)."),
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option(metavar="FORMAT", help="Log format: json, text, or auto (text on a terminal).")
    ] = LogFormat.JSON,
    has_lifeline: Annotated[bool, typer.Option("--lifeline", hidden=True)] = False,
    is_early: Annotated[bool, typer.Option("--early", hidden=True)] = False,
    **gateway: object,
) -> None:
    """Start one service of the microservices topology. It runs until TERM or INT."""
    given = {
        "data": data,
        "host": host,
        "insecure": insecure,
        "app": app,
        "slots": slots,
        "queues": queues,
        "early": is_early,
        **gateway,
    }
    _refuse_what_does_not_concern(role, given)
    if has_lifeline:
        from holdfast.process.lifeline import lifeline

        lifeline()
    environment = _environment(role, slots)
    from holdfast.observe import log_setup
    from holdfast.observe.log_stream import BackgroundStream

    stream = BackgroundStream(sys.stderr.fileno())
    level = environment.log_level.lower()
    log_setup.configure(service=role.value, level=level, log_format=log_format.value, stream=stream)
    try:
        if role is ServiceRole.WORKER:
            _work(environment, app or "", queues or "")
        else:
            _serve(role, environment, stream, given)
    finally:
        stream.close()


def _refuse_what_does_not_concern(role: ServiceRole, given: Mapping[str, object]) -> None:
    problems = [
        f"--{name.replace('_', '-')} is an option of {', '.join(sorted(roles))}, not of {role}"
        for name, roles in _CONCERNS.items()
        if given[name] and role not in roles
    ]
    if problems:
        raise InvalidArgumentError("\n".join(problems), reason="OPTION_NOT_FOR_ROLE")


def _environment(role: ServiceRole, slots: str | None) -> "Environment":
    """Reads the environment; removes the token from it, so that child processes do not inherit it."""
    from holdfast.server.rpc_port import need_grpc

    need_grpc("a service of the microservices topology")
    from holdfast.topologies.microservices.services.environment import read

    secrets = {name: secret_of(name, os.environ) for name in _SECRETS}
    environment = read(role, {**os.environ, **secrets, **({} if slots is None else {"WORKER_SLOTS": slots})})
    os.environ.pop("SERVICE_TOKEN", None)
    return environment


def _serve(role: ServiceRole, environment: "Environment", stream: "ByteStream", given: Mapping[str, Any]) -> None:
    import uvloop

    from holdfast.topologies.microservices.process import serve
    from holdfast.topologies.microservices.role_table import ServiceOptions

    options = ServiceOptions(
        role=role.value,
        host=given["host"] or "127.0.0.1",
        data=given["data"],
        is_insecure=given["insecure"],
        is_early=given["early"],
        **({"gateway": _gateway(given)} if role is ServiceRole.GATEWAY else {}),
    )
    uvloop.run(serve(options, environment, stream))


def _gateway(given: Mapping[str, Any]) -> Settings:
    """Returns the settings of the gateway, from the options alone."""
    options = {name: given[name] for name in ("host", "insecure", *_OF_THE_GATEWAY)}
    return load(Settings, flags={**options, "data": MEMORY}, environment={}, folder=None).settings


def _work(environment: "Environment", app_path: str, queues: str) -> None:
    from holdfast.cli.worker import end_process_of, load_handlers, queue_names, run_to_the_end
    from holdfast.observe.tracing_export import exporting
    from holdfast.topologies.microservices.services.environment import WorkerEnvironment
    from holdfast.topologies.microservices.worker import work
    from holdfast.worker.app_loader import schedules_of

    assert isinstance(environment, WorkerEnvironment)
    app, handlers = load_handlers(app_path)
    schedules = tuple(spec.name for spec in schedules_of(app))
    try:
        with exporting(os.environ, "holdfast-worker"):
            ended = run_to_the_end(work(environment, handlers, app_path, queue_names(queues), schedules))
    finally:
        if app is not None and hasattr(app, "close"):
            app.close()
    end_process_of(ended)


def _signature() -> inspect.Signature:
    """Returns the parameters above and the settings that are options of the gateway."""
    own = [one for one in inspect.signature(service).parameters.values() if one.kind is not one.VAR_KEYWORD]
    return inspect.Signature([*own, *of_a_gateway(_OF_THE_GATEWAY)])


# typer reads the signature; mypy does not know that functions may carry one.
service.__signature__ = _signature()  # type: ignore[attr-defined]
