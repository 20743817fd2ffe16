"""`python -m holdfast.lab.faults.*`: real faults, read from the transition log."""

import signal

from holdfast.lab.faults import resets, restarts
from holdfast.lab.faults.one_job import Fate


async def test_reset_is_measured() -> None:
    """A job whose worker's connection was reset has one start in the log, and its end."""
    assert await resets.measure(1, 0.5) == Fate("1 resets in 0.5 s", starts=1, losses=0, end="DONE")


async def test_restart_is_measured() -> None:
    """The log of both servers tells of the one start and of the end."""
    fate = await restarts.measure("killed", signal.SIGKILL, ahead_ms=60_000)
    assert fate == Fate("killed", starts=1, losses=0, end="DONE")
