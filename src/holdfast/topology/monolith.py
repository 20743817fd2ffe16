"""`holdfast up --topology monolith`: equal nodes."""

from holdfast.errors import UnimplementedError
from holdfast.observe.logging import ByteStream
from holdfast.settings import Settings


async def serve(settings: Settings, log_stream: ByteStream) -> None:
    """Until TERM or INT."""
    del settings, log_stream
    raise UnimplementedError("this topology is not there yet")
