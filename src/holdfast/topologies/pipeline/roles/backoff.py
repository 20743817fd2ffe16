"""Back-off during an outage of a neighbour: growing delays between retries, and one log line for each change."""

import random

from holdfast.errors import HoldfastError
from holdfast.observe.logs import get_logger


class Outage:
    """The outage of one neighbour."""

    def __init__(self, what: str, first_s: float = 0.05, delay_s_max: float = 2.0) -> None:
        self._what = what
        self._first_s = first_s
        self._delay_s_max = delay_s_max
        self._failures = 0
        self._log = get_logger()

    @property
    def is_on(self) -> bool:
        """Whether the last call failed."""
        return self._failures > 0

    def failed(self, error: HoldfastError) -> float:
        """Records a failed call, and returns the delay before the next one, in seconds."""
        if not self._failures:
            self._log.warning("neighbour_away", peer=self._what, reason=error.reason, message=error.message)
        delay_s = min(self._first_s * (1 << min(self._failures, 10)), self._delay_s_max)
        self._failures += 1
        return delay_s * random.uniform(0.5, 1.0)

    def ended(self) -> None:
        """Records a successful call."""
        if self._failures:
            self._failures = 0
            self._log.info("neighbour_back", peer=self._what)
