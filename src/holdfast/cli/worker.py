"""`holdfast worker`: a worker process for a running server."""

import os
import sys
from typing import Annotated

import typer
import uvloop

from holdfast import limits
from holdfast.errors import InvalidArgumentError
from holdfast.observe import logging
from holdfast.observe.stream import BackgroundStream
from holdfast.settings import purpose, refuse_unknown_variables
from holdfast.worker.lifeline import die_with_parent, lifeline
from holdfast.topology.worker_process import default_worker_id, run_worker
from holdfast.worker.runtime import WorkerConfig

#: Environment variables that belong to this command alone.
VARIABLES = ("HOLDFAST_CONNECT", "HOLDFAST_QUEUES", "HOLDFAST_DRAIN_MS")

_PORT_MAX = 65_535


def worker(
    connect: Annotated[
        str, typer.Option(envvar="HOLDFAST_CONNECT", metavar="HOST:PORT", help="where the server listens")
    ] = "127.0.0.1:50051",
    queues: Annotated[
        str,
        typer.Option(
            "--queues", "-Q", envvar="HOLDFAST_QUEUES", metavar="A,B", help="the queues to serve; all if none is named"
        ),
    ] = "",
    slots: Annotated[
        int,
        typer.Option(
            *("--slots", "-c"),
            envvar="HOLDFAST_SLOTS",
            min=1,
            max=limits.SLOTS_MAX,
            metavar="N",
            help="how many jobs to run at a time",
        ),
    ] = 8,
    worker_id: Annotated[
        str,
        typer.Option(
            envvar="HOLDFAST_WORKER_ID", metavar="NAME", help="a name of its own; if empty, made from the host's name"
        ),
    ] = "",
    drain_ms: Annotated[
        int,
        typer.Option(envvar="HOLDFAST_DRAIN_MS", min=0, metavar="MS", help="how long a stop waits for running jobs"),
    ] = 30_000,
    log_level: Annotated[
        logging.Level, typer.Option(envvar="HOLDFAST_LOG_LEVEL", metavar="LEVEL", help=purpose("log_level"))
    ] = "info",
    log_format: Annotated[
        logging.Format, typer.Option(envvar="HOLDFAST_LOG_FORMAT", metavar="FORMAT", help=purpose("log_format"))
    ] = "auto",
    has_lifeline: Annotated[bool, typer.Option("--lifeline", hidden=True)] = False,
) -> None:
    """Runs the built-in job types until TERM or INT."""
    refuse_unknown_variables(os.environ, VARIABLES)
    _refuse_no_address(connect)
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


def _refuse_no_address(text: str) -> None:
    """Without a port there is nothing to wait for, and a worker would wait for it for ever."""
    host, _, port = text.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) <= _PORT_MAX):
        raise InvalidArgumentError(f"expected --connect to be host:port, got {text!r}", reason="ADDRESS_INVALID")
