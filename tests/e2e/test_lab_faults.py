"""`python -m holdfast_lab.faults.*`: real faults, measured with the transition log."""

import signal

from holdfast_lab.faults import resets, restart_during_job
from holdfast_lab.faults.one_job import JobOutcome


async def test_reset_is_measured() -> None:
    """The log of a job whose worker's connection was reset has one start and its end."""
    assert await resets.measure(1, 0.5) == JobOutcome("1 resets in 0.5 s", starts=1, losses=0, end="DONE")


async def test_restart_is_measured() -> None:
    """The logs of the server before and after a kill have one start and the end of the job."""
    fate = await restart_during_job.measure("killed", signal.SIGKILL, ahead_ms=60_000)
    assert fate == JobOutcome("killed", starts=1, losses=0, end="DONE")
