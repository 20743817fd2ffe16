"""`holdfast up --topology pipeline`: gateway, schedulers, watchers, exchanges, queue processes, coordinator, workers.

All of them stand around one PostgreSQL: the one that is named, or a private one in the data directory, which is started
first and ends last. Every other process is started again when it dies. Only the gateway is reached from beyond this
machine, if at all.
"""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from holdfast.errors import InvalidArgumentError
from holdfast.observe.logging import ByteStream
from holdfast.settings import FIELDS, Settings, masked
from holdfast.topology.announcing import announce, places
from holdfast.topology.pipeline_layout import Layout, Roles, layout_of
from holdfast.topology.signals import on_stop
from holdfast.topology.supervising import StoppedError, Supervisor

_FOLDER = "postgres"
#: In memory means that nothing has to outlive the machine.
_FORGETFUL = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
#: Settings that only a ledger heeds.
_UNHEEDED = (
    *("worker_timeout_ms", "retain_jobs", "retain_bytes"),
    *("history_ms", "segment_bytes", "snapshot_bytes", "dedup_keys_max"),
)


async def serve(settings: Settings, log_stream: ByteStream) -> None:
    """Until TERM or INT; a second one leaves little time, a third one none."""
    del log_stream  # the roles log by themselves
    check(settings)
    supervisor = Supervisor([])
    with on_stop(supervisor.stop):
        async with _database(settings) as url:
            layout = layout_of(settings)
            with contextlib.suppress(StoppedError):
                for stage in Roles(settings, layout, url).stages():
                    lines = await supervisor.add(stage)
                    if "gateway" in lines:
                        gateway = lines["gateway"]
                _announce(settings, layout, url, {name: gateway[name] for name in ("grpc", "http") if name in gateway})
            await supervisor.wait()


def check(settings: Settings) -> None:
    """`InvalidArgumentError` names what these roles would not do."""
    problems = [
        f"expected {name} to be left alone, because the pipeline topology does not heed it,"
        f" got {getattr(settings, name)}"
        for name in _UNHEEDED
        if getattr(settings, name) != FIELDS[name].default
    ]
    if problems:
        raise InvalidArgumentError("\n".join(problems), reason="SETTINGS_INVALID")


@contextlib.asynccontextmanager
async def _database(settings: Settings) -> AsyncIterator[str]:
    """Where the database is; a private one lives as long as the block."""
    if settings.database:
        yield settings.database
        return
    from holdfast.topology.private_postgres import PrivatePostgres  # noqa: PLC0415 - it needs psycopg

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


def _announce(settings: Settings, layout: Layout, url: str, gateway: dict[str, str]) -> None:
    """Jobs can be submitted and run."""
    data = settings.data if settings.is_in_memory else str(Path(settings.data).absolute())
    line = {"event": "ready", **gateway, "database": masked(url), "roles": layout.addresses(), "data": data}
    where = places(gateway, is_secure=bool(settings.tls_cert))
    kept = masked(url) if settings.database else f"a private PostgreSQL in {data}"
    announce({**line, "pid": os.getpid()}, f"ready with the jobs in {kept}: {where}; Ctrl-C stops it")
