"""The processes of both sides, over databases of one PostgreSQL: only the side that is measured runs."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg

from holdfast.lab.compare.topologies import last_words
from holdfast.lab.pipeline import place
from holdfast.lab.processes import ended
from holdfast.process.private_postgres import PrivatePostgres

#: As many worker processes with as many slots on both sides; where Procrastinate is quicker with one, it gets one.
WORKERS = 3
CONCURRENCY = 5


class Cluster:
    """One PostgreSQL for all, with a database for each trial."""

    def __init__(self, server: PrivatePostgres) -> None:
        self._server = server
        self._count = 0

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """The URL of an empty database, gone after the block; what earlier ones left to write is written first."""
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
    """`holdfast up --topology pipeline` with its defaults, however many are asked for; its producers' environment."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "holdfast",
        "up",
        "--topology",
        "pipeline",
        "--port",
        "0",
        "--http-port",
        "0",
    ]
    command += ["--slots", str(CONCURRENCY), "--log-level", "warning", "--log-format", "json"]
    if workers:
        command += ["--app", "holdfast.lab.pipeline.our_app:app"]
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder, (Path(folder) / "log").open("wb") as log:
        environment = {**os.environ, "HOLDFAST_DATABASE": database}
        process = subprocess.Popen(
            [*command, "--data", f"{folder}/data"], env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        )
        with ended(process):
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"the pipeline does not start: {last_words(Path(folder) / 'log')}")
            ready = json.loads(line)
            yield {place.GATEWAY: f"holdfast://{ready['grpc']}"}


@contextlib.contextmanager
def procrastinate(database: str, *, workers: int) -> Iterator[Mapping[str, str]]:
    """Its schema and its worker processes, by its own command; as many slots in all, however many processes."""
    environment = {place.DATABASE: database}
    command = [sys.executable, "-m", "procrastinate", "--app=holdfast.lab.pipeline.procrastinate_app.app"]
    _run([*command, "schema", "--apply"], environment, errors=subprocess.DEVNULL)
    slots = WORKERS * CONCURRENCY // max(1, workers)
    worker = [*command, "--log-level=warning", "worker", f"--concurrency={slots}"]
    with contextlib.ExitStack() as stack:
        for _ in range(workers):
            environ = {**os.environ, **environment}
            process = subprocess.Popen(worker, env=environ, stderr=subprocess.DEVNULL, text=True)
            stack.enter_context(ended(process))
        yield environment


SIDES: Mapping[str, Callable[..., contextlib.AbstractContextManager[Mapping[str, str]]]] = {
    "ours": ours,
    "procrastinate": procrastinate,
}


def measure(environment: Mapping[str, str], side: str, what: str, count: int) -> dict[str, Any]:
    """What a producer in a process of its own measured."""
    command = [sys.executable, "-P", "-m", "holdfast.lab.pipeline.load", side, what, str(count)]
    return dict(json.loads(_run(command, environment)))


def _run(command: list[str], environment: Mapping[str, str], errors: int | None = None) -> bytes:
    environ = {**os.environ, **environment}
    return subprocess.run(command, env=environ, check=True, stdout=subprocess.PIPE, stderr=errors).stdout
