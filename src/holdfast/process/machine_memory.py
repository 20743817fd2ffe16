"""The memory limit for the jobs of a server."""

from holdfast import limits
from holdfast.process.memory import available_bytes
from holdfast.settings import Settings


def memory_for_jobs(settings: Settings) -> int:
    """Returns the configured limit, or a share of the memory of the machine or container."""
    return settings.memory_bytes or available_bytes() // limits.MEMORY_SHARE
