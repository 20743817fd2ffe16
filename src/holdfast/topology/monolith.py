"""`holdfast up --topology monolith`: equal nodes, each a process of its own that is started again when it dies.

The order of the nodes is that of their ports, and never changes: clients find the owner of a job by it.
"""

import contextlib
import os
import sys
from pathlib import Path

from holdfast.errors import InvalidArgumentError
from holdfast.observe.logging import ByteStream
from holdfast.settings import FIELDS, OF_THE_PIPELINE, Settings
from holdfast.topology.announcing import announce
from holdfast.topology.kept_process import Role
from holdfast.topology.signals import on_stop
from holdfast.topology.supervising import StoppedError, Supervisor

_PORT_MAX = 65_535
_PORT = "HOLDFAST_PORT"
#: What each node is told apart, and what is no concern of a node's.
_OWN = (
    frozenset({"data", "port", "http_port", "no_http", "metrics_port", "topology", "nodes", "tokens"}) | OF_THE_PIPELINE
)


async def serve(settings: Settings, log_stream: ByteStream) -> None:
    """Until TERM or INT; a second one leaves little time, a third one none."""
    del log_stream  # the nodes log by themselves
    check(settings)
    supervisor = Supervisor([role(settings, index) for index in range(settings.nodes)])
    with on_stop(supervisor.stop):
        with contextlib.suppress(StoppedError):
            lines = await supervisor.start()
            _announce(settings, [str(lines[_name(index)]["grpc"]) for index in range(settings.nodes)])
        await supervisor.wait()


def check(settings: Settings) -> None:
    """`InvalidArgumentError` if there are not enough ports."""
    for name in ("port", "metrics_port"):
        first = getattr(settings, name)
        if first and first + settings.nodes - 1 > _PORT_MAX:
            raise InvalidArgumentError(
                f"expected {name} to be at most {_PORT_MAX - settings.nodes + 1}, because {settings.nodes} nodes take"
                f" as many ports from there on, got {first}",
                reason="SETTINGS_INVALID",
            )
    first, metrics = settings.port, settings.metrics_port
    if first and metrics and abs(first - metrics) < settings.nodes:
        raise InvalidArgumentError(
            f"expected metrics_port to be at least {settings.nodes} away from port, got {metrics} and {first}",
            reason="SETTINGS_INVALID",
        )


def role(settings: Settings, index: int) -> Role:
    """One node, told everything that was settled here; its port stays the one that it got first."""
    port = settings.port and settings.port + index
    return Role(_name(index), _command(settings, index), {_PORT: str(port)}, _PORT)


def _name(index: int) -> str:
    return f"node-{index}"


def _command(settings: Settings, index: int) -> list[str]:
    data = settings.data if settings.is_in_memory else str(Path(settings.data) / _name(index))
    metrics_port = settings.metrics_port and settings.metrics_port + index
    return [
        *(sys.executable, "-m", "holdfast", "node", "--index", str(index), "--nodes", str(settings.nodes)),
        *("--data", data, "--metrics-port", str(metrics_port), "--lifeline", "--no-http"),
        *(("--tokens", settings.tokens_file) if settings.tokens_file else ()),
        *(part for name in FIELDS if name not in _OWN for part in _option(name, getattr(settings, name))),
    ]


def _option(name: str, value: object) -> list[str]:
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [option] if value else []
    return [option, str(value)] if value != "" else []


def _announce(settings: Settings, nodes: list[str]) -> None:
    """Jobs can be submitted and run."""
    data = settings.data if settings.is_in_memory else str(Path(settings.data).absolute())
    addresses = ",".join(nodes)
    line = {"event": "ready", "grpc": addresses, "nodes": nodes, "data": data, "pid": os.getpid()}
    url = f'Holdfast("holdfast://{addresses}")'
    where = f"{url}, or --connect {addresses}"
    announce(line, f"{len(nodes)} nodes are ready with the jobs in {data}: {where}; Ctrl-C stops them")
