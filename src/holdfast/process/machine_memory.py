"""How much of the machine's memory the jobs of a server may take."""

from holdfast import limits
from holdfast.process.memory import available_bytes
from holdfast.settings import Settings


def memory_for_jobs(settings: Settings) -> int:
    """What is set, or a part of what the machine or the container has."""
    return settings.memory_bytes or available_bytes() // limits.MEMORY_SHARE
