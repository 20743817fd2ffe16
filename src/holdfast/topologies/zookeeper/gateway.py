"""`holdfast zookeeper gateway`: serves clients that do not connect to the ensemble themselves.

It stores nothing; while the ensemble has no majority its calls are UNAVAILABLE. It is also a candidate for steward.
"""

import asyncio
import os
from contextlib import AsyncExitStack

from holdfast.errors import UnavailableError
from holdfast.observe.logs import get_logger
from holdfast.process.ready_line import announce, places
from holdfast.process.signals import on_stop
from holdfast.server.backend import Backend
from holdfast.server.protection import protect
from holdfast.server.public_server import PublicServer
from holdfast.settings import Settings
from holdfast.topologies.worker_process import exempt_what_is_loaded
from holdfast.topologies.zookeeper import ZOOKEEPER
from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection
from holdfast.topologies.zookeeper.backend.job_api import NodeJobs
from holdfast.topologies.zookeeper.backend.records import NodeRetention
from holdfast.topologies.zookeeper.backend.retention import write_retention
from holdfast.topologies.zookeeper.backend.steward import Steward
from holdfast.topologies.zookeeper.client_api import open_connection
from holdfast.topologies.zookeeper.ensemble_url import Ensemble

_ELSEWHERE = "workers of this topology bid in its ensemble: holdfast worker --connect zk://{place}"


#: Attempts to connect at the start: the ensemble may be electing its leader.
_TRIES = 3


async def serve(settings: Settings, ensemble: Ensemble) -> None:
    """Serves until TERM or INT; `UnavailableError` if the ensemble does not answer at the start."""
    protection = protect(settings)
    stopping = asyncio.Event()
    with on_stop(stopping.set):
        async with AsyncExitStack() as closing:
            connection = await _connected(ensemble)
            closing.push_async_callback(connection.close)
            retention = NodeRetention(settings.retain_ms, settings.failed_retention_ms)
            await write_retention(connection, retention)
            steward = Steward(connection)
            await steward.start()
            closing.push_async_callback(steward.stop)
            jobs = NodeJobs(connection)
            elsewhere = _ELSEWHERE.format(place=ensemble.place)
            backend = Backend(jobs, declared=ZOOKEEPER, histories=jobs, elsewhere=elsewhere)
            public_server = PublicServer(backend, settings, protection=protection)
            addresses = await public_server.start()
            # Answer open calls before the connection to the ensemble is closed.
            closing.push_async_callback(public_server.stop)
            exempt_what_is_loaded()
            line = {"event": "ready", "service": "gateway", **addresses, "ensemble": ensemble.place}
            where = places(addresses, is_secure=bool(settings.tls_cert))
            announce({**line, "pid": os.getpid()}, f"the gateway is ready: {where}; Ctrl-C stops it")
            await stopping.wait()
        get_logger().info("stopped")


async def _connected(ensemble: Ensemble) -> EnsembleConnection:
    for _ in range(1, _TRIES):
        try:
            return await open_connection(ensemble, is_guarded=True)
        except UnavailableError as error:
            get_logger().info("ensemble_away", message=f"{error.message}; retrying")
    return await open_connection(ensemble, is_guarded=True)
