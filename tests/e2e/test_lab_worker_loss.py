"""`python -m holdfast.lab.worker_loss`: real kills, read from the transition log."""

from holdfast.lab.compare.topologies import TOPOLOGIES
from holdfast.lab.worker_loss import kill_worker


async def test_next_attempt_after_a_kill_is_read_from_the_log() -> None:
    """The job of the killed worker has a second start in the log, after the kill."""
    assert await kill_worker(TOPOLOGIES["embedded"]) > 0
