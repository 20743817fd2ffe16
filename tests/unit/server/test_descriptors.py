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
from holdfast.server.ledger_server import LedgerServer
from holdfast.settings import Settings
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


@pytest.mark.parametrize("limit", [1_024, 20_000, 65_536])
@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("has_grpc", [False, True], ids=["wire", "grpc"])
async def test_connections_of_all_ports_together_leave_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, *, has_grpc: bool, is_secure: bool
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
    server = LedgerServer(settings, log_stream=BytesIO())
    await server.start()
    try:
        allowed = allowed_by(server)
    finally:
        await server.stop()
    handshakes = [name for name in allowed if name.endswith("handshakes")]
    assert len(handshakes) == is_secure * (1 if has_grpc else 2)
    assert limit - sum(allowed.values()) >= limit // 16


def allowed_by(server: LedgerServer) -> dict[str, int]:
    """The connections that each part of a server allows."""
    public = server.public_server
    # The socket and the ports of the wire count their connections together.
    assert server._socket._service._budget is public._wire._budget
    allowed = {"wire": min(public._wire._budget.most, limits.WIRE_CONNECTIONS_MAX)}
    ports = {"http": public._http, "metrics": public._metrics}
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
