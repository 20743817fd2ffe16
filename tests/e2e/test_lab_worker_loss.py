"""`python -m holdfast_lab.faults.worker_loss`: real kills, measured with the transition log."""

from holdfast_lab.compare.topologies import TOPOLOGIES
from holdfast_lab.faults.worker_loss import kill_worker


async def test_next_attempt_after_a_kill_is_read_from_the_log() -> None:
    """The log of the killed worker's job has a second start, after the kill."""
    assert await kill_worker(TOPOLOGIES["embedded"]) > 0
