"""`holdfast server` and `holdfast up`: one ledger server, alone or with a worker beside it."""

import asyncio
import contextlib
import os
from pathlib import Path

from holdfast.errors import InvalidArgumentError
from holdfast.observe.log_setup import ByteStream
from holdfast.process.garbage_collector import tune_collector
from holdfast.process.ready_line import announce, places
from holdfast.process.signals import on_stop
from holdfast.process.supervisor import StoppedError, Supervisor
from holdfast.server.ledger_server import LedgerServer
from holdfast.server.startup import StartStoppedError
from holdfast.settings import Settings
from holdfast.topologies.worker_process import worker_role


def _announce(server: LedgerServer, settings: Settings) -> None:
    """Announces that jobs can be submitted and run."""
    data = settings.data if settings.is_in_memory else str(Path(settings.data).absolute())
    line = {"event": "ready", **server.addresses, "data": data, "pid": os.getpid()}
    where = places(server.addresses, is_secure=bool(settings.tls_cert))
    announce(line, f"ready with the jobs in {data}: {where}; Ctrl-C stops it")


async def serve(settings: Settings, log_stream: ByteStream) -> None:
    """Runs a server without a worker, until TERM or INT."""
    server = LedgerServer(settings, log_stream=log_stream)
    stopping = asyncio.Event()

    def stop() -> None:
        stopping.set()
        server.give_up()

    with on_stop(stop), contextlib.suppress(StartStoppedError):
        await server.start()
        tune_collector()
        _announce(server, settings)
        await stopping.wait()
        await server.stop()


async def serve_and_work(settings: Settings, log_stream: ByteStream) -> None:
    """Runs a server and one worker process, until TERM or INT; a second signal does not wait for running jobs."""
    if settings.is_in_memory and (settings.tls_cert or settings.tokens):
        raise InvalidArgumentError(
            "--data must be a directory when tokens or TLS are set, because the worker of `holdfast up` uses the"
            " socket in it; name a directory, or start `holdfast server` and `holdfast worker`",
            reason="SETTINGS_INVALID",
        )
    server = LedgerServer(settings, log_stream=log_stream)
    supervisor = Supervisor([])

    def stop() -> None:
        supervisor.stop()
        server.give_up()

    with on_stop(stop), contextlib.suppress(StartStoppedError):
        address = await server.start()
        # The socket needs no token and no TLS: only this user may open it.
        target = str(Path(server.admin.socket).parent) if server.admin.socket else address
        tune_collector()
        try:
            with contextlib.suppress(StoppedError):
                await supervisor.add([worker_role(settings, target)])
                _announce(server, settings)
            await supervisor.stopping()
            await server.drain()
            await supervisor.wait()
        finally:
            await server.stop()
