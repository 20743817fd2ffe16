"""`holdfast up --topology microservices`: six services, each in its own process.

The owners start first. As soon as they listen, the gateway starts too, and answers probes while they recover. Then the
coordinator starts, then the worker; they stop in the reverse order. Service tokens are created at every start, and each
is passed to one process only. Other machines can reach at most the gateway.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import InvalidArgumentError
from holdfast.observe.log_setup import ByteStream
from holdfast.process.child_command import child_command
from holdfast.process.memory import memory_for_jobs
from holdfast.process.ready_line import announce, places
from holdfast.process.signals import on_stop
from holdfast.process.supervised_process import ProcessSpec
from holdfast.process.supervisor import Lines, StoppedError, Supervisor
from holdfast.server.auth.service_tokens import make_tokens
from holdfast.server.protection import protect
from holdfast.server.rpc_port import need_grpc
from holdfast.settings import FIELDS, Settings, option_of, unheeded
from holdfast.topologies.microservices.services.environment import CALLERS

_PORT_MAX = 65_535
_HTTP_PORT = "GATEWAY_HTTP_PORT"
#: The offset of each service's port from that of the gateway.
_OFFSETS: Mapping[str, int] = {"gateway": 0, "job": 1, "queue": 2, "coordinator": 3, "result": 4}
_OWNERS = ("job", "queue", "result")
#: Settings that only a ledger uses.
_UNHEEDED = (
    *("lease_ms", "reconnect_grace_ms", "aging_ms", "retain_jobs", "retain_bytes"),
    *("history_ms", "history_bytes", "segment_bytes", "work_rate_limit"),
)
#: Settings that are passed to the gateway unchanged.
_OF_THE_GATEWAY = (
    *("host", "tls_cert", "tls_key", "tls_client_ca", "allowed_hosts", "rate_limit", "metrics_port"),
    "grpc_connections",
)


async def serve(settings: Settings, log_stream: ByteStream) -> None:
    """Runs until TERM or INT; a second signal limits the time of each stage, a third one kills the processes."""
    del log_stream  # the services write their own logs
    check(settings)
    services = ServiceCommands(settings)
    supervisor = Supervisor([])
    with on_stop(supervisor.stop):
        with contextlib.suppress(StoppedError):
            lines = await _start(supervisor, services)
            _announce(settings, _addresses(lines), _reached(lines["gateway"]))
        await supervisor.wait()


async def _start(supervisor: Supervisor, services: "ServiceCommands") -> Lines:
    """Starts everything in order, and returns the ready line of every service except the worker."""
    owners = supervisor.begin([services.owner(name) for name in _OWNERS])
    gateway = supervisor.begin([services.gateway(_addresses(await supervisor.listening(owners)))])
    lines = await supervisor.ready(owners)
    # The coordinator would log every call that an owner refuses during its recovery.
    lines |= await supervisor.add([services.coordinator(_addresses(lines))])
    lines |= await supervisor.ready(gateway)
    await supervisor.add([services.worker(_addresses(lines))])
    return lines


def _addresses(lines: Lines) -> dict[str, str]:
    return {name: str(line["grpc"]) for name, line in lines.items()}


def _reached(line: Mapping[str, Any]) -> dict[str, str]:
    """Returns the addresses of the gateway, by protocol."""
    return {name: str(line[name]) for name in ("grpc", "http", "metrics") if name in line}


def check(settings: Settings) -> None:
    """Raises `InvalidArgumentError` for ignored settings and conflicting ports, other errors for missing protection."""
    need_grpc("the microservices topology")
    problems = [*unheeded(settings, "microservices", _UNHEEDED)]
    if settings.port + max(_OFFSETS.values()) > _PORT_MAX:
        problems.append(
            f"--port must be at most {_PORT_MAX - max(_OFFSETS.values())}, because the services take"
            f" {len(_OFFSETS)} ports from there on, got {settings.port}"
        )
    problems += [
        f"{option_of(name)} must be none of the {len(_OFFSETS)} ports from {settings.port} on, which the services take,"
        f" got {port}"
        for name, port in (("http_port", settings.http_port), ("metrics_port", settings.metrics_port))
        if settings.port < port <= settings.port + max(_OFFSETS.values())
        and not (name == "http_port" and settings.no_http)
    ]
    if problems:
        raise InvalidArgumentError("\n".join(problems), reason="SETTINGS_INVALID")
    protect(settings)


class ServiceCommands:
    """The command and the environment of each of the six roles."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        made = make_tokens(CALLERS)
        self._tokens, self._hashes = made.tokens, made.hashes

    def owner(self, name: str) -> ProcessSpec:
        """Returns the role of an owner (job, queue or result), which calls no other service."""
        settings = self._settings
        place = [] if settings.is_in_memory else ["--data", str(Path(settings.data).absolute())]
        keys = {"MAX_DEDUP_KEYS": str(settings.dedup_keys_max)} if name == "job" and settings.dedup_keys_max else {}
        memory = {"MEMORY_BYTES": str(memory_for_jobs(settings))} if name == "job" else {}
        kept = {"RETAIN_MS": settings.retain_ms, "RETAIN_FAILED_MS": settings.failed_retention_ms}
        spans = {} if name == "queue" else {variable: str(value) for variable, value in kept.items()}
        snapshots = {"SNAPSHOT_BYTES": str(settings.snapshot_bytes)}
        hashes = {"SERVICE_TOKEN_HASHES": self._hashes}
        return self._role(name, [*place, "--early"], {**hashes, **keys, **memory, **spans, **snapshots})

    def coordinator(self, addresses: Mapping[str, str]) -> ProcessSpec:
        """Returns the role of the coordinator, which workers call and which calls the owners."""
        environment = {
            **self._calling("coordinator", addresses),
            "SERVICE_TOKEN_HASHES": self._hashes,
            "HEARTBEAT_INTERVAL_MS": str(self._settings.heartbeat_ms),
            "WORKER_TIMEOUT_MS": str(self._settings.worker_timeout_ms),
        }
        return self._role("coordinator", [], environment)

    def gateway(self, addresses: Mapping[str, str]) -> ProcessSpec:
        """Returns the role of the gateway, which clients call and which calls the owners."""
        settings = self._settings
        tokens = str(Path(settings.tokens_file).absolute()) if settings.tokens_file else ""
        told = {**{name: getattr(settings, name) for name in _OF_THE_GATEWAY}, "tokens": tokens}
        arguments = [
            *(part for name, value in told.items() if value != FIELDS[name].default for part in _option(name, value)),
            *(["--insecure"] if settings.insecure else []),
            *(["--reflection"] if settings.reflection else []),
        ]
        # A gateway that is restarted serves at once: the owners that are up need not wait for one that is not.
        role = msgspec.structs.replace(
            self._role("gateway", arguments, self._calling("gateway", addresses)), until_ready=["--early"]
        )
        if settings.no_http:
            return role
        environment = {**role.environment, _HTTP_PORT: str(settings.http_port)}
        return msgspec.structs.replace(role, environment=environment, http_port_variable=_HTTP_PORT)

    def worker(self, addresses: Mapping[str, str]) -> ProcessSpec:
        """Returns the role of the worker, which calls the coordinator."""
        settings = self._settings
        environment = {
            "SERVICE_TOKEN": self._tokens["worker"],
            "COORDINATOR_ADDR": addresses["coordinator"],
            "HEARTBEAT_INTERVAL_MS": str(settings.heartbeat_ms),
            **({"WORKER_ID": settings.worker_id} if settings.worker_id else {}),
        }
        arguments = ["--slots", str(settings.slots), *(["--app", settings.app] if settings.app else [])]
        return self._role("worker", arguments, environment)

    def _calling(self, name: str, addresses: Mapping[str, str]) -> dict[str, str]:
        return {
            "SERVICE_TOKEN": self._tokens[name],
            **{f"{owner.upper()}_SERVICE_ADDR": addresses[owner] for owner in _OWNERS},
        }

    def _role(self, name: str, arguments: list[str], environment: Mapping[str, str]) -> ProcessSpec:
        settings = self._settings
        command = [
            *child_command("holdfast", "service", name, *arguments),
            *("--log-format", settings.log_format, "--lifeline"),
        ]
        variables = {"LOG_LEVEL": settings.log_level, **environment}
        if name not in _OFFSETS:
            return ProcessSpec(name, command, variables)
        variable = f"{name.upper()}_PORT"
        port = settings.port and settings.port + _OFFSETS[name]
        return ProcessSpec(name, command, {**variables, variable: str(port)}, port_variable=variable)


def _option(name: str, value: object) -> tuple[str, str]:
    return f"--{name.replace('_', '-')}", str(value)


def _announce(settings: Settings, services: Mapping[str, str], reached: Mapping[str, str]) -> None:
    """Announces that jobs can be submitted and run."""
    data = settings.data if settings.is_in_memory else str(Path(settings.data).absolute())
    line = {"event": "ready", **reached, "services": dict(services), "data": data, "pid": os.getpid()}
    announce(
        line, f"ready with the jobs in {data}: {places(reached, is_secure=bool(settings.tls_cert))}; Ctrl-C stops it"
    )
