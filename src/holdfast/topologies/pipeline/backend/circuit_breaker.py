"""Circuit breaker: a process that did not respond is not called again for a short time."""

import time
from collections.abc import Iterable

from holdfast.errors import HoldfastError
from holdfast.observe.logs import get_logger

#: About the time that the restart of a process takes.
AWAY_S = 0.5
_SHORTEST_S = 0.001


class CircuitBreaker:
    """The addresses that did not respond; logs once when one fails, and once when it is back."""

    def __init__(self, what: str, away_s: float = AWAY_S) -> None:
        self._what = what
        self._away_s = away_s
        self._until: dict[str, float] = {}
        self._log = get_logger()

    def is_away(self, address: str) -> bool:
        """Whether this address should not be called now."""
        until = self._until.get(address)
        return until is not None and time.monotonic() < until

    def wait_s(self, addresses: Iterable[str]) -> float | None:
        """Returns the time until the first of these may be called again; None if none of them is away.

        Some timers fire a little too early, so the caller has to check again after it has waited.
        """
        now_s = time.monotonic()
        left_s = [self._until[address] - now_s for address in addresses if address in self._until]
        return max(_SHORTEST_S, min(left_s)) if left_s else None

    def all(self) -> list[str]:
        """Returns the addresses whose last call failed."""
        return sorted(self._until)

    def missed(self, address: str, error: HoldfastError) -> None:
        """Records a failed call."""
        if address not in self._until:
            self._log.warning("neighbour_away", peer=f"{self._what} {address}", message=error.message)
        self._until[address] = time.monotonic() + self._away_s

    def answered(self, address: str) -> None:
        """Records a successful call."""
        if self._until.pop(address, None) is not None:
            self._log.info("neighbour_back", peer=f"{self._what} {address}")

    def in_order(self, addresses: Iterable[str]) -> list[str]:
        """Sorts the available addresses before those that are away."""
        return sorted(addresses, key=self.is_away)
