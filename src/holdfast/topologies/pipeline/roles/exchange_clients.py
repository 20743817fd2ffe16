"""A watcher's client of the exchanges: calls them in turn, and the next one if one is unavailable."""

from collections.abc import Sequence
from typing import TypeVar

from holdfast.errors import HoldfastError, UnavailableError
from holdfast.topologies.pipeline.backend.circuit_breaker import CircuitBreaker
from holdfast.topologies.pipeline.backend.http_client import RoleConnections
from holdfast.topologies.pipeline.backend.messages import FullLanesReply, LaneCapacities, PushTickets, RoutedTickets
from holdfast.topologies.pipeline.backend.store import FullLane, Ticket

T = TypeVar("T")

#: Longer than an exchange waits for its slowest queue process.
_DEADLINE_S = 2.5


class ExchangeClients:
    """Any number of exchanges, `host:port` each."""

    def __init__(self, addresses: Sequence[str], lines: RoleConnections) -> None:
        self._addresses = tuple(addresses)
        self._lines = lines
        self._turn = 0
        self.breaker = CircuitBreaker("exchange")

    async def push(self, tickets: Sequence[Ticket], keep_ms: int) -> RoutedTickets:
        """Sends tickets. Raises `UnavailableError` if no exchange responds; some may still have been accepted."""
        return await self._ask("/exchange/push", PushTickets(jobs=list(tickets), keep_ms=keep_ms), RoutedTickets)

    async def rooms(self, lanes: Sequence[FullLane]) -> list[int]:
        """Returns the free capacity of each lane. Raises `UnavailableError` if no exchange responds."""
        return (await self._ask("/exchange/room", FullLanesReply(lanes=list(lanes)), LaneCapacities)).rooms

    async def _ask(self, path: str, content: object, kind: type[T]) -> T:
        """Calls the next exchange in turn, and the others if it fails; all requests are repeatable."""
        self._turn += 1
        start = self._turn % len(self._addresses)
        failure: HoldfastError | None = None
        for address in self.breaker.in_order((*self._addresses[start:], *self._addresses[:start])):
            try:
                told = await self._lines.tell(address, path, content, kind=kind, deadline_s=_DEADLINE_S)
            except HoldfastError as error:
                self.breaker.missed(address, error)
                failure = failure or error
            else:
                self.breaker.answered(address)
                return told
        raise UnavailableError(f"no exchange responds: {failure}", reason="NO_EXCHANGE")
