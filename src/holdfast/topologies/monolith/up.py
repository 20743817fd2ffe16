"""`holdfast up --topology monolith`: equal nodes, each in its own process, which is restarted when it ends.

The order of the nodes is that of their ports, and never changes: clients find the owner of a job by it. The front, a
separate process, serves HTTP for all nodes. It connects to their sockets: in their directories, or, if jobs are kept in
memory, in a temporary directory that only this user can open. It starts once every node has locked its directory, so
that it never reaches the nodes of another instance, and a second instance is refused for the lock.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast import limits
from holdfast.errors import FailedPreconditionError, HoldfastError, InvalidArgumentError
from holdfast.observe.log_setup import ByteStream
from holdfast.process.child_command import child_command
from holdfast.process.memory import memory_for_jobs
from holdfast.process.ready_line import announce, places
from holdfast.process.signals import on_stop
from holdfast.process.supervised_process import ProcessSpec
from holdfast.process.supervisor import Lines, StoppedError, Supervisor
from holdfast.server.protection import protect
from holdfast.settings import FIELDS, Settings
from holdfast.topologies.table import OWN_SETTINGS

_PORT_MAX = 65_535
_PORT, _HTTP_PORT = "HOLDFAST_PORT", "HOLDFAST_HTTP_PORT"
#: Settings that are passed to the front unchanged; its port is in its environment variable.
_OF_THE_FRONT = (
    *("host", "tls_cert", "tls_key", "tls_client_ca", "allowed_hosts", "rate_limit", "insecure"),
    *("log_level", "log_format"),
)
#: Settings that differ between nodes, and settings that nodes do not use.
_OWN = OWN_SETTINGS | {
    *("data", "port", "http_port", "no_http", "metrics_port", "topology", "nodes", "tokens", "memory_bytes"),
}


async def serve(settings: Settings, log_stream: ByteStream) -> None:
    """Runs until TERM or INT; a second signal limits the time of each stage, a third one kills the processes."""
    del log_stream  # the nodes write their own logs
    check(settings)
    with _sockets(settings) as sockets:
        supervisor = Supervisor([])
        with on_stop(supervisor.stop):
            with contextlib.suppress(StoppedError):
                await _start(supervisor, settings, sockets)
            await supervisor.wait()


async def _start(supervisor: Supervisor, settings: Settings, sockets: Path | None) -> None:
    """Starts the nodes, and the front as soon as all of them listen; it answers probes while they recover."""
    stage = supervisor.begin([role(settings, index, sockets) for index in range(settings.nodes)])
    front = []
    if not settings.no_http:
        listening = await supervisor.listening(stage)
        front = supervisor.begin([front_role(settings, listening)])
    lines = await supervisor.ready(stage)
    try:
        if front:
            check_sockets(settings, lines)
        reached = (await supervisor.ready(front)).get("front", {})
    except HoldfastError:
        supervisor.stop()
        await supervisor.wait()
        raise
    nodes = [str(lines[_name(index)]["grpc"]) for index in range(settings.nodes)]
    _announce(settings, nodes, {name: str(reached[name]) for name in ("http",) if name in reached})


@contextlib.contextmanager
def _sockets(settings: Settings) -> Iterator[Path | None]:
    """Yields the directory for the sockets of nodes in memory; None if they have directories or there is no front."""
    if settings.no_http or not settings.is_in_memory:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        yield Path(folder)


def check(settings: Settings) -> None:
    """Raises `InvalidArgumentError` for unsuitable ports or memory, other errors for missing protection."""
    problems = [
        f"{name} must be at most {_PORT_MAX - settings.nodes + 1}, because {settings.nodes} nodes take"
        f" as many ports from there on, got {first}"
        for name, first in (("--port", settings.port), ("--metrics-port", settings.metrics_port))
        if first and first + settings.nodes - 1 > _PORT_MAX
    ]
    first, metrics = settings.port, settings.metrics_port
    if first and metrics and abs(first - metrics) < settings.nodes:
        problems.append(f"--metrics-port must be at least {settings.nodes} away from --port, got {metrics} and {first}")
    problems += [
        f"--http-port must be none of the {settings.nodes} ports of the nodes from {name} {taken} on,"
        f" got {settings.http_port}"
        for name, taken in (("--port", first), ("--metrics-port", metrics))
        if taken and not settings.no_http and taken < settings.http_port < taken + settings.nodes
    ]
    least = settings.nodes * limits.MEMORY_BYTES_MIN
    if 0 < settings.memory_bytes < least:
        problems.append(
            f"--memory-bytes must be at least {least}, because {settings.nodes} nodes share it,"
            f" got {settings.memory_bytes}"
        )
    if problems:
        raise InvalidArgumentError("\n".join(problems), reason="SETTINGS_INVALID")
    protect(settings)


def role(settings: Settings, index: int, sockets: Path | None = None) -> ProcessSpec:
    """Returns the role of one node, with all its settings; after a restart it listens on the same port."""
    port = settings.port and settings.port + index
    socket = ["--socket", str(sockets / f"{_name(index)}.sock")] if sockets is not None else []
    command = [*_command(settings, index), *socket]
    return ProcessSpec(_name(index), command, {_PORT: str(port)}, _PORT, until_ready=["--early"])


def check_sockets(settings: Settings, lines: Lines) -> None:
    """Raises `FailedPreconditionError` unless every node has a socket, by which the front reaches it."""
    if not all(lines[_name(index)].get("socket") for index in range(settings.nodes)):
        raise FailedPreconditionError(
            f"{settings.data!r} is on a file system without support for sockets, which HTTP over all nodes needs;"
            " choose another directory, or use --no-http",
            reason="SOCKET_UNUSABLE",
        )


def front_role(settings: Settings, listening: Lines) -> ProcessSpec:
    """Returns the role of the front, which connects to the sockets that the nodes have told, once they appear.

    A front that is restarted serves at once: the jobs of one node need not wait for another node.
    """
    paths = [str(listening[_name(index)]["socket"]) for index in range(settings.nodes)]
    command = [
        *child_command("holdfast", "front", "--lifeline", "--metrics-port", "0"),
        *(part for path in paths for part in ("--socket", path)),
        *_told(settings, _OF_THE_FRONT),
    ]
    port = {_HTTP_PORT: str(settings.http_port)}
    return ProcessSpec("front", command, port, http_port_variable=_HTTP_PORT, until_ready=["--early"])


def _name(index: int) -> str:
    return f"node-{index}"


def _command(settings: Settings, index: int) -> list[str]:
    data = settings.data if settings.is_in_memory else str(Path(settings.data) / _name(index))
    metrics_port = settings.metrics_port and settings.metrics_port + index
    return [
        *child_command("holdfast", "node", "--index", str(index), "--nodes", str(settings.nodes)),
        *("--data", data, "--metrics-port", str(metrics_port), "--lifeline", "--no-http"),
        # The nodes share the memory of one machine.
        *("--memory-bytes", str(max(memory_for_jobs(settings) // settings.nodes, limits.MEMORY_BYTES_MIN))),
        *_told(settings, [name for name in FIELDS if name not in _OWN]),
    ]


def _told(settings: Settings, names: Sequence[str]) -> list[str]:
    """Returns these settings as options, with the token file, which all processes share."""
    tokens = ["--tokens", settings.tokens_file] if settings.tokens_file else []
    return [*tokens, *(part for name in names for part in _option(name, getattr(settings, name)))]


def _option(name: str, value: object) -> list[str]:
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [option] if value else []
    return [option, str(value)] if value != "" else []


def _announce(settings: Settings, nodes: list[str], front: dict[str, str]) -> None:
    """Announces that jobs can be submitted and run."""
    data = settings.data if settings.is_in_memory else str(Path(settings.data).absolute())
    reached = {"grpc": ",".join(nodes), **front}
    line = {"event": "ready", **reached, "nodes": nodes, "data": data, "pid": os.getpid()}
    where = places(reached, is_secure=bool(settings.tls_cert))
    announce(line, f"{len(nodes)} nodes are ready with the jobs in {data}: {where}; Ctrl-C stops them")
