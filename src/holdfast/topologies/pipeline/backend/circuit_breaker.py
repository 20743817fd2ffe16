"""Who was away a moment ago: nobody waits for it again before that moment is over."""

import time
from collections.abc import Iterable

from holdfast.errors import HoldfastError
from holdfast.observe.logs import get_logger

#: As long as a process takes to be started again.
AWAY_S = 0.5
_SHORTEST_S = 0.001


class Absence:
    """Remembers who did not answer; says so once when it goes, and once when it is back."""

    def __init__(self, what: str, away_s: float = AWAY_S) -> None:
        self._what = what
        self._away_s = away_s
        self._until: dict[str, float] = {}
        self._log = get_logger()

    def is_away(self, address: str) -> bool:
        """Whether it is not worth asking now."""
        until = self._until.get(address)
        return until is not None and time.monotonic() < until

    def wait_s(self, addresses: Iterable[str]) -> float | None:
        """How long until the first of these that are away is worth asking; None if none of them is away.

        Some timers come a moment too early, so that whoever has waited has to look again.
        """
        now_s = time.monotonic()
        left_s = [self._until[address] - now_s for address in addresses if address in self._until]
        return max(_SHORTEST_S, min(left_s)) if left_s else None

    def all(self) -> list[str]:
        """Who has not answered since it last should have."""
        return sorted(self._until)

    def missed(self, address: str, error: HoldfastError) -> None:
        """It did not answer."""
        if address not in self._until:
            self._log.warning("neighbour_away", peer=f"{self._what} {address}", message=error.message)
        self._until[address] = time.monotonic() + self._away_s

    def answered(self, address: str) -> None:
        """It did."""
        if self._until.pop(address, None) is not None:
            self._log.info("neighbour_back", peer=f"{self._what} {address}")

    def in_order(self, addresses: Iterable[str]) -> list[str]:
        """Those that are there before those that are away."""
        return sorted(addresses, key=self.is_away)
