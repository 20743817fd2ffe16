"""gRPC channels to a Holdfast server, made in one place."""

import grpc

from holdfast import limits
from holdfast.client.access import ANYBODY, Access

_OPTIONS = (
    ("grpc.max_receive_message_length", limits.MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", limits.MESSAGE_BYTES_MAX),
    # A peer that vanished without a word is noticed within half a minute.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # After an outage, come back within the first second of it.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)


def open_channel(target: str, access: Access = ANYBODY) -> grpc.aio.Channel:
    """A channel of its own (not shared with others in this process) to `host:port`."""
    options = (*_OPTIONS, ("grpc.use_local_subchannel_pool", 1))
    if not access.is_secure:
        return grpc.aio.insecure_channel(target, options)
    credentials = grpc.ssl_channel_credentials(access.ca or None, access.key or None, access.cert or None)
    return grpc.aio.secure_channel(target, credentials, options)
