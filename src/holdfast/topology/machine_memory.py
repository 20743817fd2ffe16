"""How much of the machine's memory the jobs of a server may take."""

from holdfast import limits
from holdfast.settings import Settings
from holdfast.worker.memory import available_bytes


def memory_for_jobs(settings: Settings) -> int:
    """What is set, or a part of what the machine or the container has."""
    return settings.memory_bytes or available_bytes() // limits.MEMORY_SHARE
