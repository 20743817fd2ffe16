"""Servers as processes of their own, started for a measurement and ended after it."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: A Ctrl-C at the terminal is for the program that measures, which ends them.
_APART = True


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """The process, ended with the block."""
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()


@contextmanager
def echo_server() -> Iterator[str]:
    """The address of a bare grpc.aio echo."""
    command = [sys.executable, "-P", "-m", "holdfast.lab.echo_server"]
    with ended(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=_APART)) as process:
        assert process.stdout is not None
        yield f"127.0.0.1:{process.stdout.readline().strip()}"


@contextmanager
def holdfast_server(*options: str) -> Iterator[tuple[str, int, Path]]:
    """Address, process id and directory of a server with the product's defaults, its logs going to a file."""
    with _server(*options) as (ready, data):
        yield ready["grpc"], ready["pid"], data


@contextmanager
def holdfast_http_server() -> Iterator[tuple[str, str, Path]]:
    """Its address for gRPC, that for HTTP, and its directory."""
    with _server() as (ready, data):
        yield ready["grpc"], ready["http"], data


@contextmanager
def _server(*options: str) -> Iterator[tuple[dict[str, Any], Path]]:
    """What the server says once it is ready, and its directory."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        data = Path(folder) / "data"
        command = [
            sys.executable,
            "-P",
            "-m",
            "holdfast",
            "server",
            "--data",
            str(data),
            "--port",
            "0",
            "--http-port",
            "0",
        ]
        command += options
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=_APART)
            with ended(process):
                assert process.stdout is not None
                yield json.loads(process.stdout.readline()), data


def resident_bytes(pid: int) -> int:
    """Memory that a process has resident now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1_024
    raise RuntimeError(f"no resident size for process {pid}")
