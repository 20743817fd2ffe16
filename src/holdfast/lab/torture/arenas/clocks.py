"""Clocks that cannot be stepped at will."""

from holdfast.lab.torture.ports import Clockwork, NotNowError

#: Some stores keep what has ended for a day and cannot be told otherwise: further steps would make them forget.
_STEP_MS_MAX = 43_200_000


class ShortClock:
    """A clock that is stepped by hours, never by days. Implements the port `Clockwork`."""

    def __init__(self, clock: Clockwork) -> None:
        self._clock = clock

    def step(self, ms: int) -> None:
        """So far ahead (or back) of the true time; `NotNowError` if that is too far."""
        if abs(ms) > _STEP_MS_MAX:
            raise NotNowError("what is older than a day is forgotten here")
        self._clock.step(ms)
