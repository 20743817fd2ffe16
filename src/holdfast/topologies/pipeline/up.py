"""`holdfast up --topology pipeline`: gateway, schedulers, watchers, exchanges, queue processes, coordinator, workers.

All of them use one PostgreSQL: the one that is named, or a private one in the data directory, which starts first and
stops last. Every other process is restarted when it ends. Other machines can reach at most the gateway. Service tokens
are created at every start: each role that calls others gets its own, and the operator's is in a file.
"""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from holdfast.errors import InvalidArgumentError
from holdfast.observe.log_setup import ByteStream
from holdfast.process.private_paths import make_directory, replace_secret
from holdfast.process.ready_line import announce, places
from holdfast.process.signals import on_stop
from holdfast.process.supervisor import StoppedError, Supervisor
from holdfast.server.auth.service_tokens import make_tokens
from holdfast.server.protection import protect
from holdfast.settings import Settings, masked, unheeded
from holdfast.topologies.pipeline.layout import PipelineLayout, RoleCommands, layout_of
from holdfast.topologies.pipeline.requirements import need_packages
from holdfast.topologies.pipeline.roles.callers import CALLERS, OPERATOR

_FOLDER = "postgres"
_OPERATOR_FILE = "operator.token"
#: For jobs in memory: the database need not survive a crash.
_FORGETFUL = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
#: Settings that only a ledger uses.
_UNHEEDED = (
    *("worker_timeout_ms", "reconnect_grace_ms", "retain_jobs", "retain_bytes", "memory_bytes"),
    *("history_ms", "history_bytes", "segment_bytes", "snapshot_bytes", "dedup_keys_max"),
)


async def serve(settings: Settings, log_stream: ByteStream) -> None:
    """Runs until TERM or INT; a second signal limits the time of each stage, a third one kills the processes."""
    del log_stream  # the roles write their own logs
    need_packages()
    check(settings)
    supervisor = Supervisor([])
    with on_stop(supervisor.stop):
        async with _database(settings) as url:
            layout, made = layout_of(settings), make_tokens(CALLERS)
            with _operator_file(settings, made.tokens[OPERATOR]) as operator:
                with contextlib.suppress(StoppedError):
                    for stage in RoleCommands(settings, layout, url, made).stages():
                        lines = await supervisor.add(stage)
                        if "gateway" in lines:
                            gateway = lines["gateway"]
                    reached: dict[str, str] = {name: gateway[name] for name in ("grpc", "http") if name in gateway}
                    _announce(settings, layout, url, reached, operator)
                await supervisor.wait()


def check(settings: Settings) -> None:
    """Raises `InvalidArgumentError` for ignored settings, other errors for missing protection."""
    problems = [*unheeded(settings, "pipeline", _UNHEEDED)]
    if problems:
        raise InvalidArgumentError("\n".join(problems), reason="SETTINGS_INVALID")
    protect(settings)


@contextlib.asynccontextmanager
async def _database(settings: Settings) -> AsyncIterator[str]:
    """Yields the URL of the database; a private one runs during the block."""
    if settings.database:
        yield settings.database
        return
    from holdfast.process.private_postgres import PrivatePostgres  # noqa: PLC0415 - it needs psycopg

    with contextlib.ExitStack() as closing:
        if settings.is_in_memory:
            folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-")))
            server = PrivatePostgres(folder / _FOLDER, _FORGETFUL)
        else:
            server = PrivatePostgres(Path(settings.data) / _FOLDER)
        starting = asyncio.ensure_future(asyncio.to_thread(server.start))
        try:
            yield await asyncio.shield(starting)
        finally:
            await asyncio.wait([starting])
            await asyncio.to_thread(server.stop)


@contextlib.contextmanager
def _operator_file(settings: Settings, token: str) -> Iterator[Path]:
    """Yields the file with the operator's token, which only this user may read and which is deleted after the block."""
    with contextlib.ExitStack() as closing:
        if settings.is_in_memory:
            folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-")))
        else:
            folder = Path(settings.data).absolute()
            make_directory(folder)
        path = folder / _OPERATOR_FILE
        replace_secret(path, token)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)


def _announce(settings: Settings, layout: PipelineLayout, url: str, gateway: dict[str, str], operator: Path) -> None:
    """Announces that jobs can be submitted and run."""
    data = settings.data if settings.is_in_memory else str(Path(settings.data).absolute())
    line = {"event": "ready", **gateway, "database": masked(url), "roles": layout.addresses(), "data": data}
    line["operator_token"] = str(operator)
    where = places(gateway, is_secure=bool(settings.tls_cert))
    kept = masked(url) if settings.database else f"a private PostgreSQL in {data}"
    announce({**line, "pid": os.getpid()}, f"ready with the jobs in {kept}: {where}; Ctrl-C stops it")
