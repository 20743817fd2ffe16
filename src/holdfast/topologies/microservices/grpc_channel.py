"""gRPC channels to a Holdfast server."""

import grpc

from holdfast import limits
from holdfast.client.access import NO_CREDENTIALS, Access

_OPTIONS = (
    ("grpc.max_receive_message_length", limits.MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", limits.MESSAGE_BYTES_MAX),
    # Detects a dead peer within 30 seconds.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Reconnects within a second after an outage.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)


def open_channel(target: str, access: Access = NO_CREDENTIALS) -> grpc.aio.Channel:
    """Opens a channel to `host:port` that shares no connection with other channels of this process."""
    options = (*_OPTIONS, ("grpc.use_local_subchannel_pool", 1))
    if not access.is_secure:
        return grpc.aio.insecure_channel(target, options)
    credentials = grpc.ssl_channel_credentials(access.ca or None, access.key or None, access.cert or None)
    return grpc.aio.secure_channel(target, credentials, options)
