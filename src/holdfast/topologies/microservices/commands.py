"""`holdfast service ROLE`: one service of the microservices topology; its environment says the rest."""

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
    from holdfast.observe.logging import ByteStream
    from holdfast.topologies.microservices.services.environment import Environment

EPILOG = "Ports, addresses and times are variables, such as JOB_PORT: see docs/topologies/microservices.md."


class ServiceRole(StrEnum):
    """What a process can be."""

    GATEWAY = "gateway"
    JOB = "job"
    QUEUE = "queue"
    COORDINATOR = "coordinator"
    RESULT = "result"
    WORKER = "worker"


class LogFormat(StrEnum):
    """What the lines of a log look like."""

    AUTO = "auto"
    JSON = "json"
    TEXT = "text"


#: Variables that may name a file instead, as SERVICE_TOKEN_FILE does.
_SECRETS = ("SERVICE_TOKEN", "SERVICE_TOKEN_HASHES")
_EVERY = frozenset(ServiceRole)
#: Settings that are options of the gateway: what protects it, and what it serves beside its ports.
_OF_THE_GATEWAY = (
    *("reflection", "tokens", "tls_cert", "tls_key", "tls_client_ca", "allowed_hosts", "rate_limit", "metrics_port"),
    "grpc_connections",
)
#: Which roles an option concerns; said to another, it is a mistake.
_CONCERNS = {
    **dict.fromkeys(_OF_THE_GATEWAY, frozenset({ServiceRole.GATEWAY})),
    "data": frozenset({ServiceRole.JOB, ServiceRole.QUEUE, ServiceRole.RESULT}),
    "host": _EVERY - {ServiceRole.WORKER},
    "insecure": _EVERY - {ServiceRole.WORKER},
    "app": frozenset({ServiceRole.WORKER}),
    "slots": frozenset({ServiceRole.WORKER}),
    "queues": frozenset({ServiceRole.WORKER}),
}


def service(
    role: Annotated[ServiceRole, typer.Argument(help="What this process is.", show_default=False)],
    data: Annotated[
        Path | None,
        typer.Option(help="Where job, queue and result keep what they own; memory if not given.", metavar="DIRECTORY"),
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on (default: 127.0.0.1).")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond loopback, even where nothing protects the jobs.")
    ] = False,
    app: Annotated[
        str | None, typer.Option("--app", "-A", metavar="MODULE:APP", help="Whose jobs the worker runs, too.")
    ] = None,
    slots: Annotated[
        str | None, typer.Option("--slots", "-c", metavar="N", help="As WORKER_SLOTS, and stronger.")
    ] = None,
    queues: Annotated[
        str | None,
        typer.Option("--queues", "-Q", metavar="A,B", help="The queues that the worker serves (default: all)."),
    ] = None,
    log_format: Annotated[LogFormat, typer.Option(help="json, text, or auto: text on a terminal.")] = LogFormat.JSON,
    has_lifeline: Annotated[bool, typer.Option("--lifeline", hidden=True)] = False,
    **gateway: object,
) -> None:
    """Serves until TERM or INT."""
    given = {
        "data": data,
        "host": host,
        "insecure": insecure,
        "app": app,
        "slots": slots,
        "queues": queues,
        **gateway,
    }
    _refuse_what_does_not_concern(role, given)
    if has_lifeline:
        from holdfast.process.lifeline import die_with_parent, lifeline

        die_with_parent()
        lifeline()
    environment = _environment(role, slots)
    from holdfast.observe import logging
    from holdfast.observe.log_stream import BackgroundStream

    stream = BackgroundStream(sys.stderr.fileno())
    level = environment.log_level.lower()
    logging.configure(service=role.value, level=level, log_format=log_format.value, stream=stream)
    try:
        if role is ServiceRole.WORKER:
            _work(environment, app or "", queues or "")
        else:
            _serve(role, environment, stream, given)
    finally:
        stream.close()


def _refuse_what_does_not_concern(role: ServiceRole, given: Mapping[str, object]) -> None:
    problems = [
        f"expected --{name.replace('_', '-')} for {', '.join(sorted(roles))} only, got it for {role}"
        for name, roles in _CONCERNS.items()
        if given[name] and role not in roles
    ]
    if problems:
        raise InvalidArgumentError("\n".join(problems), reason="OPTION_NOT_FOR_ROLE")


def _environment(role: ServiceRole, slots: str | None) -> "Environment":
    """What the environment says; what is secret in it is not for children of this process."""
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
        **({"gateway": _gateway(given)} if role is ServiceRole.GATEWAY else {}),
    )
    uvloop.run(serve(options, environment, stream))


def _gateway(given: Mapping[str, Any]) -> Settings:
    """What the options say, and nothing else."""
    options = {name: given[name] for name in ("host", "insecure", *_OF_THE_GATEWAY)}
    return load(Settings, flags={**options, "data": MEMORY}, environment={}, folder=None).settings


def _work(environment: "Environment", app_path: str, queues: str) -> None:
    from holdfast.cli.worker import load_handlers, run_to_the_end
    from holdfast.observe.tracing_export import exporting
    from holdfast.topologies.microservices.services.environment import WorkerEnvironment
    from holdfast.topologies.microservices.worker import work
    from holdfast.worker.app_loader import schedules_of

    assert isinstance(environment, WorkerEnvironment)
    app, handlers = load_handlers(app_path)
    schedules = tuple(spec.name for spec in schedules_of(app))
    try:
        with exporting(os.environ, "holdfast-worker"):
            ended = run_to_the_end(work(environment, handlers, app_path, _queue_names(queues), schedules))
    finally:
        if app is not None and hasattr(app, "close"):
            app.close()
    if ended.has_left_behind:
        sys.stdout.flush()
        os._exit(0)  # a coroutine that cannot be canceled would keep the process for ever


def _queue_names(queues: str) -> frozenset[str]:
    import msgspec

    from holdfast.settings import Queues

    try:
        return frozenset(name for name in msgspec.convert(queues, Queues).split(",") if name)
    except (msgspec.ValidationError, UnicodeEncodeError):
        message = f"expected --queues to be names of queues, with commas, got {queues!r}"
        raise InvalidArgumentError(message, reason="QUEUE_NAME_INVALID") from None


def _signature() -> inspect.Signature:
    """What stands above, and the settings that are options of the gateway."""
    own = [one for one in inspect.signature(service).parameters.values() if one.kind is not one.VAR_KEYWORD]
    return inspect.Signature([*own, *of_a_gateway(_OF_THE_GATEWAY)])


# typer reads the signature; mypy does not know that functions may carry one.
service.__signature__ = _signature()  # type: ignore[attr-defined]
