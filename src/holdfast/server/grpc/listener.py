"""The options and the port of every gRPC server."""

import grpc

from holdfast import limits
from holdfast.errors import UnavailableError
from holdfast.server.auth.certificates import CertificateMaterial, Certificates

_OPTIONS = (
    ("grpc.max_receive_message_length", limits.MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", limits.MESSAGE_BYTES_MAX),
    # Bounds the memory of one connection: a number of calls, and one window for each call that is not read yet. A call
    # that is read gets a window as large as its message; the probe would enlarge all other windows as well.
    ("grpc.max_concurrent_streams", limits.STREAMS_PER_CONNECTION_MAX),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.server_handshake_timeout_ms", limits.GRPC_HANDSHAKE_MS_MAX),
    ("grpc.max_connection_idle_ms", limits.GRPC_IDLE_MS_MAX),
    # Detect workers that disappear without closing the connection, and tolerate frequent pings.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    # Two servers on one port would silently split the clients between them.
    ("grpc.so_reuseport", 0),
)


def server_options(connections_max: int) -> tuple[tuple[str, int], ...]:
    """Returns the options of every server."""
    return (*_OPTIONS, ("grpc.max_allowed_incoming_connections", connections_max))


def bind(server: grpc.aio.Server, host: str, port: int, certificates: Certificates | None = None) -> str:
    """Binds the port and returns the address; `UnavailableError` if it is not available."""
    address = f"[{host}]" if ":" in host else host
    try:
        if certificates is None:
            bound = server.add_insecure_port(f"{address}:{port}")
        else:
            bound = server.add_secure_port(f"{address}:{port}", _credentials(certificates))
    except RuntimeError as error:
        raise UnavailableError(
            f"cannot listen on {address}:{port}: the port is in use, or the address is not one of this machine;"
            " choose another port, with --port or the variable of the service, or another --host",
            reason="PORT_IN_USE",
        ) from error
    return f"{address}:{bound}"


def port_of(address: str) -> int:
    """Returns the port of an address that `bind` returned."""
    return int(address.rpartition(":")[2])


def _credentials(certificates: Certificates) -> grpc.ServerCredentials:
    """Returns credentials that follow the certificates: gRPC checks for changes at every handshake."""
    shown = certificates.material

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal shown
        if certificates.material is shown:
            return None
        shown = certificates.material
        return _configuration(shown)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(shown),
        changed,  # type: ignore[arg-type]  # the stubs lack None, which means no change
        require_client_authentication=certificates.asks_clients,
    )


def _configuration(material: CertificateMaterial) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(material.key, material.chain)], root_certificates=material.client_ca or None
    )
