"""Child processes of a measurement: started for a block and ended after it."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

#: Names the URL of the server, or the directory, to the app of `holdfast_lab.bench.noop_app`.
URL_VARIABLE = "BENCH_URL"
_STOP_S = 20.0
_WORDS_CHARS = 400


class ChildError(Exception):
    """A child process ended early or failed; the message has the end of what it wrote."""


def module(name: str, *arguments: str) -> list[str]:
    """The command that runs a module in this interpreter; the current folder is not on its path."""
    return [sys.executable, "-P", "-m", name, *arguments]


def server_command(data: Path, *options: str, program: str = "holdfast") -> list[str]:
    """`holdfast server` on free ports; a port among the options replaces them. `program` has the same options."""
    return module(program, "server", "--data", str(data), "--port", "0", "--http-port", "0", *options)


def default_environment() -> dict[str, str]:
    """The environment without the user's settings, so that programs run with the product's defaults."""
    return {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}


@contextmanager
def child(
    command: Sequence[str],
    *,
    base: Mapping[str, str] = os.environ,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: int | None = None,
    output: int | IO[bytes] = subprocess.PIPE,
    errors: int | IO[bytes] | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """The process of a command, ended with the block; its standard output is a pipe unless `output` is given.

    `environment` is added to `base`.
    It has a session of its own: a Ctrl-C at the terminal reaches the lab alone, which then ends the process.
    """
    process = subprocess.Popen(
        command,
        env={**base, **(environment or {})},
        cwd=cwd,
        stdin=stdin,
        stdout=output,
        stderr=errors,
        text=True,
        bufsize=1,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in filter(None, (process.stdin, process.stdout)):
            stream.close()


def next_line(process: subprocess.Popen[str]) -> str:
    """The next line of a child's output; raises `ChildError` if it ends instead."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise ChildError(f"{process.args!r} ended with {process.wait()} before it was ready")
    return line.rstrip("\n")


def ready_line(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The ready line of a `holdfast` program."""
    line: dict[str, Any] = json.loads(next_line(process))
    assert line["event"] == "ready", line
    return line


async def spawned(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
    stdin: int = asyncio.subprocess.DEVNULL,
) -> asyncio.subprocess.Process:
    """A program that works in the folder of its log, if it has one; its standard output is a pipe; the caller ends it.

    It has a session of its own: a Ctrl-C at the terminal reaches the lab alone, which then ends the process.
    """
    with log.open("ab") if log else contextlib.nullcontext() as errors:
        return await asyncio.create_subprocess_exec(
            *command,
            cwd=log.parent if log else None,
            env=environment,
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )


async def output_of(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    cwd: str | None = None,
    timeout_s: float | None = None,
) -> str:
    """Returns the standard output of a command; raises `ChildError` if it fails or takes too long.

    TERM ends the command if the caller is canceled.
    """
    pipe = asyncio.subprocess.PIPE
    environ = {**os.environ, **(environment or {})}
    process = await asyncio.create_subprocess_exec(
        *command, env=environ, cwd=cwd, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
    )
    try:
        async with asyncio.timeout(timeout_s):
            printed, errors = await process.communicate()
    except TimeoutError:
        raise ChildError(f"no end within {timeout_s:g} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
    if process.returncode:
        raise ChildError(last_words(errors.decode(errors="replace"), 1))
    return printed.decode()


def last_words(text: str, lines: int = 3) -> str:
    """The last lines of a text that are not empty, joined."""
    found = [line for line in text.splitlines() if line.strip()]
    return " / ".join(found[-lines:])[-_WORDS_CHARS:] or "it printed nothing"


@contextmanager
def echo_server(name: str = "measure.echo") -> Iterator[str]:
    """The address of a bare echo server, the yardstick of a measurement."""
    with child(module(f"holdfast_lab.{name}")) as process:
        yield f"127.0.0.1:{next_line(process)}"


class ServerProcess(msgspec.Struct, frozen=True):
    """A running server: its addresses, process and directory, and a token with all rights if it requires one."""

    grpc: str
    http: str
    pid: int
    data: Path
    token: str = ""

    @property
    def url(self) -> str:
        """The URL for the SDK and for workers."""
        return f"holdfast://{self.token}@{self.grpc}" if self.token else f"holdfast://{self.grpc}"

    @property
    def place(self) -> tuple[str, int]:
        """Host and port of gRPC."""
        host, _, port = self.grpc.rpartition(":")
        return host, int(port)


@contextmanager
def holdfast_server(*options: str, folder: Path | None = None, program: str = "holdfast") -> Iterator[ServerProcess]:
    """A server with the product's defaults and these options.

    `folder` gets its directory `data` and its log; without one, both are temporary.
    """
    with contextlib.ExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        log = stack.enter_context((place / "server.log").open("wb"))
        process = stack.enter_context(child(server_command(place / "data", *options, program=program), errors=log))
        ready = ready_line(process)
        yield ServerProcess(ready.get("grpc", ""), ready.get("http", ""), process.pid, place / "data")


@contextmanager
def noop_worker(url: str, slots: int = 8) -> Iterator[subprocess.Popen[str]]:
    """A worker process of `holdfast_lab.bench.noop_app` that is ready."""
    command = module("holdfast", "worker", "-A", "holdfast_lab.bench.noop_app:app", "-c", str(slots))
    with child(command, environment={URL_VARIABLE: url}, errors=subprocess.DEVNULL) as process:
        ready_line(process)
        yield process
