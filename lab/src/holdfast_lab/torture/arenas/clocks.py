"""A clock that allows only short steps."""

from holdfast_lab.torture.ports import ArenaClock, NotNowError

#: Some stores keep ended jobs for a fixed day: longer steps would make them remove jobs.
_STEP_MS_MAX = 43_200_000


class ShortClock:
    """A clock that can be set by hours, but not by days; implements the port `ArenaClock`."""

    def __init__(self, clock: ArenaClock) -> None:
        self._clock = clock

    def step(self, ms: int) -> None:
        """Sets the clock ahead of the true time (or back, if negative); `NotNowError` if the step is too long."""
        if abs(ms) > _STEP_MS_MAX:
            raise NotNowError("this topology removes jobs after a day, so its clock cannot be set that far")
        self._clock.step(ms)
