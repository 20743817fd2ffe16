"""The healthcheck that containers run."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from scripts import healthcheck
from tests.e2e.fleet import stable_port


@pytest.fixture
def tcp_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def grpc_port() -> Iterator[int]:
    server = grpc.server(ThreadPoolExecutor(max_workers=1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    server.stop(None).wait()


def arguments(mode: str, port: int) -> list[str]:
    return ["--mode", mode, "--target", f"127.0.0.1:{port}", "--timeout-ms", "60000", "--service", "job"]


def test_open_port_is_healthy(tcp_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    """In tcp mode a listening port exits 0 and prints one line that names the service."""
    assert healthcheck.main(arguments("tcp", tcp_port)) == 0
    line = json.loads(capsys.readouterr().out)
    assert (line["event"], line["service"], line["target"]) == ("healthy", "job", f"127.0.0.1:{tcp_port}")


@pytest.mark.parametrize("mode", ["tcp", "worker"])
def test_closed_port_is_unhealthy(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In either mode a closed port exits non-zero with a message."""
    short = [*arguments(mode, stable_port()), "--timeout-ms", "200"]
    assert healthcheck.main(short) == 1
    line = json.loads(capsys.readouterr().out)
    assert line["event"] == "unhealthy"
    assert line["message"]


def test_worker_is_healthy_while_its_coordinator_answers(grpc_port: int) -> None:
    """In worker mode a gRPC server at the target exits 0."""
    assert healthcheck.main(arguments("worker", grpc_port)) == 0


def test_worker_is_unhealthy_when_the_port_speaks_no_grpc(tcp_port: int) -> None:
    """In worker mode a port that accepts connections but speaks no gRPC is unhealthy."""
    assert healthcheck.main([*arguments("worker", tcp_port), "--timeout-ms", "300"]) == 1


@pytest.mark.parametrize("target", ["nowhere", ":1", "host:", "host:0", "host:65536", "host:x"])
def test_bad_target_is_a_usage_error(target: str) -> None:
    """A target that is not host:port is refused before a connection is tried."""
    with pytest.raises(SystemExit) as stopped:
        healthcheck.main(["--mode", "tcp", "--target", target])
    assert stopped.value.code == 2


def test_default_timeout_is_one_second() -> None:
    """Without --timeout-ms the check waits 1000 ms, and without --service the label is empty."""
    options = healthcheck.parse(["--mode", "tcp", "--target", "h:1"])
    assert (options.timeout_ms, options.service) == (1_000, "")


def test_module_runs_as_a_command(root: Path, tcp_port: int) -> None:
    """`python -m scripts.healthcheck` is the command that containers use."""
    command = [sys.executable, "-m", "scripts.healthcheck", *arguments("tcp", tcp_port)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["event"] == "healthy"
