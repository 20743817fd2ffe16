"""`holdfast up --topology zookeeper`: an ensemble, a gateway for clients that need one, and a worker that bids.

The ensemble is the one that is named, or a private one of three servers in the data directory, which starts first and
stops last. Every process is restarted when it ends. Other machines can reach at most the gateway. The nodes of a
private ensemble require its credentials, which are in a file of its directory; those of a named ensemble are open to
all clients that can connect to it, unless a file with credentials is named, too.
"""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import InvalidArgumentError
from holdfast.observe.log_setup import ByteStream
from holdfast.process.child_command import child_command
from holdfast.process.ready_line import announce, places
from holdfast.process.signals import on_stop
from holdfast.process.supervised_process import ProcessSpec
from holdfast.process.supervisor import StoppedError, Supervisor
from holdfast.server.protection import protect
from holdfast.settings import FIELDS, Settings, unheeded
from holdfast.topologies.worker_process import worker_role
from holdfast.topologies.zookeeper.client_api import require_library
from holdfast.topologies.zookeeper.ensemble_url import Ensemble, ensemble_of

_FOLDER = "zookeeper"
_PORT, _HTTP_PORT = "HOLDFAST_PORT", "HOLDFAST_HTTP_PORT"
#: Settings that only other topologies use.
_UNHEEDED = (
    *("heartbeat_ms", "worker_timeout_ms", "reconnect_grace_ms", "aging_ms", "retain_jobs", "retain_bytes"),
    *("memory_bytes", "history_bytes"),
    *("dedup_keys_max", "history_ms", "segment_bytes", "snapshot_bytes", "work_rate_limit"),
)
#: Settings that are passed to the gateway unchanged; its ports are in environment variables.
_OF_THE_GATEWAY = (
    *("host", "metrics_port", "tls_cert", "tls_key", "tls_client_ca", "allowed_hosts", "rate_limit"),
    "grpc_connections",
    *("no_http", "reflection", "insecure", "log_level", "log_format", "retain_ms", "retain_failed_ms"),
)


async def serve(settings: Settings, log_stream: ByteStream) -> None:
    """Runs until TERM or INT; a second signal limits the time of each stage, a third one kills the processes."""
    del log_stream  # the processes write their own logs
    check(settings)
    supervisor = Supervisor([])
    with on_stop(supervisor.stop):
        async with _ensemble(settings) as ensemble:
            with contextlib.suppress(StoppedError):
                gateway = (await supervisor.add([gateway_role(settings, ensemble)]))["gateway"]
                await supervisor.add([worker_role(settings, ensemble.url)])
                _announce(settings, ensemble, gateway)
            await supervisor.wait()


def check(settings: Settings) -> None:
    """Raises `InvalidArgumentError` for invalid settings, other errors for missing protection or packages."""
    problems = [*unheeded(settings, "zookeeper", _UNHEEDED)]
    if problems:
        raise InvalidArgumentError("\n".join(problems), reason="SETTINGS_INVALID")
    if settings.ensemble:
        ensemble_of(settings.ensemble)
    require_library()
    protect(settings)


@contextlib.asynccontextmanager
async def _ensemble(settings: Settings) -> AsyncIterator[Ensemble]:
    """Yields the ensemble; a private one runs during the block."""
    if settings.ensemble:
        yield _with_lease(settings, settings.ensemble)
        return
    from holdfast.topologies.zookeeper.private_ensemble import PrivateZooKeeper  # noqa: PLC0415 - not always needed

    with contextlib.ExitStack() as closing:
        if settings.is_in_memory:
            folder = closing.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-"))
            servers = PrivateZooKeeper(Path(folder) / _FOLDER, is_synced=False)
        else:
            servers = PrivateZooKeeper(Path(settings.data) / _FOLDER)
        starting = asyncio.ensure_future(asyncio.to_thread(servers.start))
        try:
            hosts = await asyncio.shield(starting)
            await asyncio.to_thread(servers.close_top)
            yield msgspec.structs.replace(_with_lease(settings, hosts), auth_file=str(servers.auth_file))
        finally:
            await asyncio.wait([starting])
            await asyncio.to_thread(servers.stop)


def _with_lease(settings: Settings, hosts: str) -> Ensemble:
    return msgspec.structs.replace(ensemble_of(hosts), lease_ms=settings.lease_ms)


def gateway_role(settings: Settings, ensemble: Ensemble) -> ProcessSpec:
    """Returns the role of the gateway; after a restart it listens on the same ports."""
    told = {
        **{name: getattr(settings, name) for name in _OF_THE_GATEWAY},
        "tokens": str(Path(settings.tokens_file).absolute()) if settings.tokens_file else "",
    }
    command = [
        *child_command("holdfast", "zookeeper", "gateway", "--ensemble", ensemble.place),
        *(part for name, value in told.items() if value != FIELDS[name].default for part in _option(name, value)),
        "--lifeline",
    ]
    ports = {_PORT: str(settings.port), _HTTP_PORT: str(settings.http_port)}
    return ProcessSpec("gateway", command, ports, port_variable=_PORT, http_port_variable=_HTTP_PORT)


def _option(name: str, value: object) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    return [flag] if value is True else [flag, str(value)]


def _announce(settings: Settings, ensemble: Ensemble, gateway: Mapping[str, Any]) -> None:
    """Announces that jobs can be submitted and run."""
    reached: dict[str, str] = {name: str(gateway[name]) for name in ("grpc", "http", "metrics") if name in gateway}
    line = {"event": "ready", **reached, "ensemble": ensemble.place, "pid": os.getpid()}
    where = places(reached, is_secure=bool(settings.tls_cert))
    announce(line, f"ready with the jobs in zk://{ensemble.place}: {where}; Ctrl-C stops it")
