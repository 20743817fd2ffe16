"""The processes of the pipeline on one machine, their ports and their commands."""

import contextlib
import random
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from holdfast.process.child_command import child_command
from holdfast.process.supervised_process import ProcessSpec
from holdfast.server.auth.service_tokens import KNOWN, OWN, GeneratedTokens
from holdfast.settings import FIELDS, Settings
from holdfast.worker.worker_name import host_name

_LOCAL = "127.0.0.1"
#: Outside the range of ephemeral ports, so that an outgoing connection does not take a port that was free.
_FREE_PORTS = range(15_000, 30_000)
#: The default ports on one machine.
_PORTS: Mapping[str, tuple[int, ...]] = {
    "scheduler": (8_081, 8_082, 8_083),
    "watcher": (9_001, 9_002, 9_003),
    "exchange": (2_001, 2_002),
    "normal": (7_001, 7_002),
    "high": (7_101, 7_102),
    "coordinator": (3_000,),
    "worker": (10_001, 10_002, 10_003),
}
_ALSO_PORT = 8_000


class PipelineLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The ports of every role by its name, and those of the gateway: gRPC, HTTP, and a second HTTP port."""

    roles: Mapping[str, tuple[int, ...]]
    grpc: int
    http: int
    also: int | None

    def ports(self, name: str) -> str:
        """Returns the ports of a role, separated by commas."""
        return ",".join(map(str, self.roles[name]))

    def addresses(self) -> dict[str, list[str]]:
        """Returns the addresses of each role except the gateway."""
        return {name: [f"{_LOCAL}:{port}" for port in ports] for name, ports in self.roles.items()}


def layout_of(settings: Settings) -> PipelineLayout:
    """Returns the default ports; with port 0, distinct free ports, except for a given HTTP port."""
    if settings.port:
        also = _ALSO_PORT if settings.http_port == FIELDS["http_port"].default else None
        return PipelineLayout(
            roles=_PORTS, grpc=settings.port, http=settings.http_port, also=None if settings.no_http else also
        )
    free = _free_ports()
    roles = {name: tuple(next(free) for _ in ports) for name, ports in _PORTS.items()}
    also = None if settings.no_http else next(free)
    return PipelineLayout(roles=roles, grpc=next(free), http=settings.http_port or next(free), also=also)


def _free_ports() -> Iterator[int]:
    given: set[int] = set()
    draw = random.SystemRandom()
    while True:
        port = draw.choice(_FREE_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((_LOCAL, port))
            if port not in given:
                given.add(port)
                yield port


class RoleCommands:
    """The command and the environment of each process.

    Secrets are passed in the environment, which other users cannot read: the URL of the database, which may contain a
    password, and the service token of each role that calls others.
    """

    def __init__(self, settings: Settings, layout: PipelineLayout, database: str, made: GeneratedTokens) -> None:
        self._settings = settings
        self._layout = layout
        self._made = made
        self._environment = {
            "HOLDFAST_DATABASE": database,
            **{f"HOLDFAST_{name.upper()}": str(getattr(settings, name)) for name in _BY_ENVIRONMENT_OF_ALL},
        }

    def stages(self) -> list[list[ProcessSpec]]:
        """Returns the stages in the order of their start; each stage needs those before it, and ends before them."""
        normal, high = self._layout.ports("normal"), self._layout.ports("high")
        queues = ["--normal", normal, "--high", high]
        carriers = [
            *self._each("normal", "queue", ["--type", "normal"], is_numbered=True),
            *self._each("high", "queue", ["--type", "high"], is_numbered=True),
            *self._each("exchange", "exchange", queues),
            *self._each("coordinator", "coordinator", queues),
        ]
        watchers = self._each("watcher", "watcher", ["--exchanges", self._layout.ports("exchange")])
        return [self._each("scheduler", "scheduler", []), carriers, [*watchers, self._gateway()], self._workers()]

    def _each(self, name: str, role: str, arguments: list[str], *, is_numbered: bool = False) -> list[ProcessSpec]:
        return [
            self._role(f"{name}-{port}", role, port, [*arguments, *(["--index", str(index)] if is_numbered else [])])
            for index, port in enumerate(self._layout.roles[name])
        ]

    def _gateway(self) -> ProcessSpec:
        settings, layout = self._settings, self._layout
        values = {
            "--schedulers": layout.ports("scheduler"),
            "--grpc-port": str(layout.grpc),
            "--host": settings.host,
            "--data": "" if settings.is_in_memory else str(Path(settings.data).absolute()),
            "--also-port": "" if layout.also is None else str(layout.also),
            "--metrics-port": str(settings.metrics_port or ""),
            **{f"--{name.replace('_', '-')}": getattr(settings, name) for name in _OF_THE_GATEWAY},
        }
        switches = {name: getattr(settings, name) for name in ("no_http", "reflection", "insecure")}
        arguments = [
            *(part for option, value in values.items() if value for part in (option, value)),
            *(f"--{name.replace('_', '-')}" for name, is_on in switches.items() if is_on),
        ]
        limits = {f"HOLDFAST_{name.upper()}": str(getattr(settings, name)) for name in _BY_ENVIRONMENT}
        role = self._role("gateway", "gateway", layout.http, arguments)
        return msgspec.structs.replace(role, environment={**role.environment, **limits})

    def _workers(self) -> list[ProcessSpec]:
        settings, name = self._settings, self._settings.worker_id or host_name()
        arguments = [
            *("--coordinator", self._layout.ports("coordinator"), "--concurrency", str(settings.slots)),
            *("--lease-ms", str(settings.lease_ms)),
            *(["--app", settings.app] if settings.app else []),
        ]
        return [
            self._role(f"worker-{port}", "worker", port, [*arguments, "--worker-id", f"{name}-{index + 1}"])
            for index, port in enumerate(self._layout.roles["worker"])
        ]

    def _role(self, name: str, role: str, port: int, arguments: list[str]) -> ProcessSpec:
        settings = self._settings
        command = [
            *child_command("holdfast", "pipeline", role, "--port", str(port), *arguments),
            *("--log-level", settings.log_level, "--log-format", settings.log_format, "--lifeline"),
        ]
        environment = {
            **self._environment,
            OWN: self._made.tokens.get(role, ""),
            KNOWN: self._made.hashes,
        }
        return ProcessSpec(name, command, environment, may_leave=role == "worker")


_BY_ENVIRONMENT_OF_ALL = ("retries", "retry_ms", "aging_ms", "retain_ms", "retain_failed_ms", "heartbeat_ms")
_OF_THE_GATEWAY = ("tokens", "tls_cert", "tls_key", "tls_client_ca")
_BY_ENVIRONMENT = ("rate_limit", "work_rate_limit", "allowed_hosts", "grpc_connections")
