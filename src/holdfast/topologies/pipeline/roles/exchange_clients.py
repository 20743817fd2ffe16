"""The exchanges as a watcher sees them: one after the other, and the next one if one is away."""

from collections.abc import Sequence
from typing import TypeVar

from holdfast.errors import HoldfastError, UnavailableError
from holdfast.topologies.pipeline.backend.circuit_breaker import Absence
from holdfast.topologies.pipeline.backend.http_client import RoleConnections
from holdfast.topologies.pipeline.backend.messages import FullLanesReply, PushTickets, Rooms, RoutedTickets
from holdfast.topologies.pipeline.backend.store import FullLane, Ticket

T = TypeVar("T")

#: Longer than an exchange waits for its slowest queue process.
_DEADLINE_S = 2.5


class Exchanges:
    """Any number of exchanges, `host:port` each."""

    def __init__(self, addresses: Sequence[str], lines: RoleConnections) -> None:
        self._addresses = tuple(addresses)
        self._lines = lines
        self._turn = 0
        self.absence = Absence("exchange")

    async def push(self, tickets: Sequence[Ticket], keep_ms: int) -> RoutedTickets:
        """Hands tickets on; `UnavailableError` if no exchange answers, and yet some may have been taken."""
        return await self._ask("/exchange/push", PushTickets(jobs=list(tickets), keep_ms=keep_ms), RoutedTickets)

    async def rooms(self, lanes: Sequence[FullLane]) -> list[int]:
        """For how many more tickets of each lane there is room; `UnavailableError` if no exchange answers."""
        return (await self._ask("/exchange/room", FullLanesReply(lanes=list(lanes)), Rooms)).rooms

    async def _ask(self, path: str, content: object, kind: type[T]) -> T:
        """Asks the next one in turn, and all others if need be: whatever is asked for may be asked for twice."""
        self._turn += 1
        start = self._turn % len(self._addresses)
        failure: HoldfastError | None = None
        for address in self.absence.in_order((*self._addresses[start:], *self._addresses[:start])):
            try:
                told = await self._lines.tell(address, path, content, kind=kind, deadline_s=_DEADLINE_S)
            except HoldfastError as error:
                self.absence.missed(address, error)
                failure = failure or error
            else:
                self.absence.answered(address)
                return told
        raise UnavailableError(f"no exchange answers: {failure}", reason="NO_EXCHANGE")
