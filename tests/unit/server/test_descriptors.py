"""The limit of file descriptors of a server."""

import socket
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import pytest

from holdfast import limits
from holdfast.server import descriptors, rpc_port
from holdfast.server.grpc.server import GrpcServer
from holdfast.server.http.server import HttpServer
from holdfast.server.ledger_server import LedgerServer
from holdfast.server.public_server import PublicServer
from holdfast.settings import Settings
from holdfast.topologies.pipeline.gateway import PipelineGateway
from tests.integration.made_certificates import Authority

_PROGRAM = """
import resource
from holdfast.server.descriptors import allow_many
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
hard = 4_096 if hard == resource.RLIM_INFINITY else min(hard, 4_096)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard // 2, hard))
allow_many()
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
"""


def test_server_takes_as_many_descriptors_as_it_may() -> None:
    """The server raises its soft limit of file descriptors to the hard limit, so that the journal can open files."""
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True, timeout=60)


@pytest.mark.parametrize("process", ["ledger", "pipeline gateway"])
@pytest.mark.parametrize("limit", [1_024, 20_000, 65_536])
@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("has_grpc", [False, True], ids=["wire", "grpc"])
async def test_connections_of_all_ports_together_leave_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process: str, limit: int, *, has_grpc: bool, is_secure: bool
) -> None:
    """With as many connections and handshakes as all ports allow, the journal can still open files."""
    monkeypatch.setattr(descriptors, "descriptor_limit", lambda: limit)
    monkeypatch.setattr(rpc_port, "has_grpc", lambda: has_grpc)
    cert, key = Authority(tmp_path, "ca").sign("server") if is_secure else ("", "")
    settings = Settings(
        data=str(tmp_path / "data"),
        port=0,
        http_port=0,
        metrics_port=free_port(),
        tls_cert=cert,
        tls_key=key,
        log_level="error",
    )
    allowed = await (ledger_allows(settings) if process == "ledger" else gateway_allows(settings))
    handshakes = [name for name in allowed if name.endswith("handshakes")]
    assert len(handshakes) == is_secure * ((process != "ledger") + (1 if has_grpc else 2))
    assert limit - sum(allowed.values()) >= limit // 16


async def ledger_allows(settings: Settings) -> dict[str, int]:
    """The connections that each part of a ledger server allows."""
    server = LedgerServer(settings, log_stream=BytesIO())
    await server.start()
    try:
        # The socket and the ports of the wire count their connections together.
        assert server._socket._service._budget is server.public_server.budget
        return allowed_by(server.public_server, {"http": server.public_server._http})
    finally:
        await server.stop()


async def gateway_allows(settings: Settings) -> dict[str, int]:
    """The connections that each part of a gateway with two ports of HTTP allows."""
    gateway = PipelineGateway(settings, ["127.0.0.1:1"], also_port=0, check_ms=60_000)
    await gateway.start()
    try:
        second = gateway._second
        assert second is not None
        assert second._wire._budget is gateway._public_server.budget
        return allowed_by(gateway._public_server, {"http": gateway._public_server._http, "also http": second._http})
    finally:
        await gateway.stop()


def allowed_by(public: PublicServer, ports: dict[str, HttpServer | None]) -> dict[str, int]:
    """The connections that each part of a public server allows, and those on ports of HTTP."""
    assert public._wire._budget is public.budget
    allowed = {"wire": min(public.budget.most, limits.WIRE_CONNECTIONS_MAX)}
    ports["metrics"] = public._metrics
    if isinstance(public._rpc, rpc_port.WirePort):
        assert public._rpc._wire is public._wire
        ports["calls"] = public._rpc._server
    else:
        assert isinstance(public._rpc, GrpcServer)
        allowed["grpc"] = public._rpc._connections.connections_max
    for name, port in ports.items():
        assert port is not None
        allowed[name] = port._shared.connections_max
        if port._handshakes is not None:
            allowed[f"{name} handshakes"] = port._handshakes._most
    return allowed


def free_port() -> int:
    """A port that is free now: 0 means no metrics."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])
