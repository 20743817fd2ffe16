"""`holdfast worker`: a worker process for a running server."""

import sys
from typing import Annotated

import typer
import uvloop

from holdfast import limits
from holdfast.observe import logging
from holdfast.observe.stream import BackgroundStream
from holdfast.topology.lifeline import die_with_parent, lifeline
from holdfast.topology.worker_process import default_worker_id, run_worker
from holdfast.worker.runtime import WorkerConfig

#: Environment variables that belong to this command alone.
VARIABLES = ("HOLDFAST_CONNECT", "HOLDFAST_QUEUES", "HOLDFAST_DRAIN_MS")


def worker(
    connect: Annotated[
        str, typer.Option(envvar="HOLDFAST_CONNECT", help="host:port of the server")
    ] = "127.0.0.1:50051",
    queues: Annotated[
        str,
        typer.Option("--queues", "-Q", envvar="HOLDFAST_QUEUES", help="queues to serve, with commas; all if empty"),
    ] = "",
    slots: Annotated[
        int,
        typer.Option("--slots", "-c", envvar="HOLDFAST_SLOTS", min=1, max=limits.SLOTS_MAX, help="jobs at a time"),
    ] = 8,
    worker_id: Annotated[str, typer.Option(envvar="HOLDFAST_WORKER_ID", help="a name of its own")] = "",
    drain_ms: Annotated[
        int, typer.Option(envvar="HOLDFAST_DRAIN_MS", min=0, help="how long a stop waits for running jobs")
    ] = 30_000,
    log_level: Annotated[logging.Level, typer.Option(envvar="HOLDFAST_LOG_LEVEL")] = "info",
    log_format: Annotated[logging.Format, typer.Option(envvar="HOLDFAST_LOG_FORMAT")] = "auto",
    has_lifeline: Annotated[bool, typer.Option("--lifeline", hidden=True)] = False,
) -> None:
    """Runs the built-in job types until TERM or INT."""
    stream = BackgroundStream(sys.stderr.fileno())
    logging.configure(service="worker", level=log_level, log_format=log_format, stream=stream)
    names = frozenset(name for name in queues.split(",") if name)
    config = WorkerConfig(worker_id or default_worker_id(), slots, names, drain_ms)
    if has_lifeline:
        die_with_parent()
        lifeline()
    try:
        uvloop.run(run_worker(connect, config))
    finally:
        stream.close()
