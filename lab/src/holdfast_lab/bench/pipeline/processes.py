"""Processes of both sides over databases of one PostgreSQL; only the measured side runs."""

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg

from holdfast.process.private_postgres import PrivatePostgres
from holdfast_lab.bench.pipeline import environment
from holdfast_lab.measure.processes import URL_VARIABLE, child, module, output_of, ready_line

#: Worker processes and slots of each, the same on both sides; where Procrastinate is faster with one, it gets one.
WORKERS = 3
CONCURRENCY = 5


class Cluster:
    """One PostgreSQL with a database for each trial."""

    def __init__(self, server: PrivatePostgres) -> None:
        self._server = server
        self._count = 0

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """Yields the URL of an empty database, dropped after the block; a checkpoint makes trials alike."""
        self._count += 1
        name = f"trial_{self._count}"
        with psycopg.connect(self._server.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
            connection.execute(b"CHECKPOINT")
        try:
            yield self._server.url(name)
        finally:
            with psycopg.connect(self._server.url("postgres"), autocommit=True) as connection:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """A private PostgreSQL with the product's settings: it syncs every commit."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        server = PrivatePostgres(Path(folder) / "postgres")
        server.start()
        try:
            yield Cluster(server)
        finally:
            server.stop()


@contextlib.contextmanager
def ours(database: str, *, workers: int) -> Iterator[Mapping[str, str]]:
    """`holdfast up --topology pipeline` with its default number of workers; yields the environment of producers."""
    options = ["--port", "0", "--http-port", "0", "--slots", str(CONCURRENCY), "--log-level", "error"]
    if workers:
        options += ["--app", "holdfast_lab.bench.noop_app:app"]
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        command = module("holdfast", "up", "--topology", "pipeline", "--data", f"{folder}/data", *options)
        with child(command, environment={"HOLDFAST_DATABASE": database}) as process:
            yield {URL_VARIABLE: f"holdfast://{ready_line(process)['grpc']}"}


@contextlib.contextmanager
def procrastinate(database: str, *, workers: int) -> Iterator[Mapping[str, str]]:
    """Procrastinate's schema and worker processes, by its own command; the number of slots is the same in all."""
    variables = {environment.DATABASE: database}
    command = [sys.executable, "-m", "procrastinate", "--app=holdfast_lab.bench.pipeline.procrastinate_app.app"]
    asyncio.run(output_of([*command, "schema", "--apply"], environment=variables))
    slots = WORKERS * CONCURRENCY // max(1, workers)
    worker = [*command, "--log-level=warning", "worker", f"--concurrency={slots}"]
    with contextlib.ExitStack() as stack:
        for _ in range(workers):
            stack.enter_context(child(worker, environment=variables, errors=subprocess.DEVNULL))
        yield variables


SIDES: Mapping[str, Callable[..., contextlib.AbstractContextManager[Mapping[str, str]]]] = {
    "ours": ours,
    "procrastinate": procrastinate,
}


def measure(variables: Mapping[str, str], side: str, what: str, count: int) -> dict[str, Any]:
    """Returns the figures of a producer in a process of its own."""
    command = module("holdfast_lab.bench.pipeline.load", side, what, str(count))
    return dict(json.loads(asyncio.run(output_of(command, environment=variables))))
