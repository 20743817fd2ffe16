"""How every server of ours listens."""

import grpc

from holdfast import limits
from holdfast.errors import UnavailableError
from holdfast.gateway.certificates import Certificates

SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", limits.MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", limits.MESSAGE_BYTES_MAX),
    # Workers that vanish without a word are noticed; those that ping often are not punished.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    # Two servers on one port would split the clients between them in silence.
    ("grpc.so_reuseport", 0),
)


def bind(server: grpc.aio.Server, host: str, port: int, certificates: Certificates | None = None) -> str:
    """Takes the port, and returns the address; `UnavailableError` if it cannot be had."""
    address = f"[{host}]" if ":" in host else host
    try:
        if certificates is None:
            bound = server.add_insecure_port(f"{address}:{port}")
        else:
            bound = server.add_secure_port(f"{address}:{port}", _credentials(certificates))
    except RuntimeError as error:
        raise UnavailableError(
            f"cannot listen on {address}:{port}: is another server there, or is the address not of this machine?"
            " Choose another port, with --port or the variable of the service, or another --host",
            reason="PORT_IN_USE",
        ) from error
    return f"{address}:{bound}"


def _credentials(certificates: Certificates) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials(
        [(certificates.key, certificates.chain)],
        root_certificates=certificates.client_ca or None,
        require_client_auth=bool(certificates.client_ca),
    )
