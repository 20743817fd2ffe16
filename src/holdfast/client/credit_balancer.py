"""How the room of one worker is offered to several nodes, without being given twice.

A worker wants so many leases, and nobody knows which node has jobs. While jobs flow, the room is divided among the
nodes that gave some lately. When those have nothing more for a moment, all of it is offered to every node, and once it
is filled, what the others were offered is recalled; a lease that comes beyond what is wanted is handed back unrun.

Invariants: no more leases are handed on than are wanted; those that fill the room are handed on once no node can grant
more and what was too much is handed back, or after a short while if a node does not answer.
"""

from collections.abc import Callable, Collection
from typing import Protocol

from holdfast.ports import Assignment


class Offers(Protocol):
    """What can be said to one node of room; if it is lost, the node has left."""

    async def want(self, count: int) -> None:
        """Offers room."""
        ...

    async def recall(self) -> None:
        """Takes back what was not used; `Room.recalled` hears that it is done."""
        ...

    async def release(self, tokens: Collection[int]) -> None:
        """Hands leases back; `Room.returned` hears that it is done."""
        ...


class CreditBalancer:
    """The room of one worker. `look_again` asks to be called back (`probe`) after a moment."""

    def __init__(self, deliver: Callable[[list[Assignment]], None], look_again: Callable[[], None]) -> None:
        self._deliver = deliver
        self._look_again = look_again
        self.wanted = 0
        self._nodes: dict[int, Offers] = {}
        self._offered: dict[int, int] = {}
        #: Nodes that gave leases lately, the one whose turn it is first.
        self._rich: list[int] = []
        #: Every node is offered all of the room.
        self._is_asking_all = False
        self._recalling: set[int] = set()
        #: Leases on their way back, by the node they came from.
        self._returning: dict[int, set[int]] = {}
        self._held_back: list[Assignment] = []
        self._is_closed = False

    @property
    def is_settled(self) -> bool:
        """Whether nothing is on its way back, and nothing is held back."""
        return not self._recalling and not self._returning and not self._held_back

    async def join(self, index: int, offers: Offers) -> None:
        """A node can be asked."""
        self._nodes[index], self._offered[index] = offers, 0
        if not self._is_closed:
            await self._add(index, self.wanted)

    async def leave(self, index: int) -> None:
        """A node cannot be asked any more; what it was offered is forgotten with the session."""
        self._nodes.pop(index, None)
        self._offered.pop(index, None)
        self._rich = [rich for rich in self._rich if rich != index]
        self._recalling.discard(index)
        self._returning.pop(index, None)
        self._go_on()
        await self._offer()

    async def want(self, count: int) -> None:
        """The worker has room for this many more."""
        self.wanted += count
        await self._offer()

    def close(self) -> None:
        """Nothing more is offered: the worker drains."""
        self._is_closed = True

    async def arrive(self, index: int, leases: list[Assignment]) -> None:
        """A node has granted something."""
        self._offered[index] = max(0, self._offered.get(index, 0) - len(leases))
        if index not in self._rich:
            self._rich.append(index)
        kept, surplus = leases[: self.wanted], leases[self.wanted :]
        self.wanted -= len(kept)
        self._held_back += kept
        if surplus and index in self._nodes:
            tokens = {lease.token for lease in surplus}
            self._returning.setdefault(index, set()).update(tokens)
            await self._nodes[index].release(tokens)
        if not self.wanted:
            await self._recall()
        elif self._is_asking_all:
            await self._offer_all()
        self._go_on()

    async def _recall(self) -> None:
        self._is_asking_all = False
        for index, offers in list(self._nodes.items()):
            if self._offered[index] and index not in self._recalling and not self._is_closed:
                self._offered[index] = 0
                self._recalling.add(index)
                await offers.recall()

    async def recalled(self, index: int) -> None:
        """A node grants nothing more."""
        self._recalling.discard(index)
        self._go_on()
        await self._offer()

    def returned(self, index: int, tokens: Collection[int]) -> list[int]:
        """Leases are gone; which of them the worker had been told of."""
        returning = self._returning.get(index, set())
        kept = [lease for lease in self._held_back if lease.token not in tokens]
        gone = {lease.token for lease in self._held_back}.difference(lease.token for lease in kept)
        self.wanted += len(gone)
        self._held_back = kept
        known = [token for token in tokens if token not in returning and token not in gone]
        returning.difference_update(tokens)
        if not returning:
            self._returning.pop(index, None)
        self._go_on()
        return known

    def _go_on(self) -> None:
        if not self._recalling and not self._returning:
            self.hand_on()

    def hand_on(self) -> None:
        """The worker is told of its leases now, whatever is still on its way."""
        leases, self._held_back = self._held_back, []
        if leases:
            self._deliver(leases)

    # -- offering

    async def _offer(self) -> None:
        missing = self.wanted - sum(self._offered.values())
        if self._is_closed or (missing <= 0 and not self._is_asking_all):
            return
        rich = (
            []
            if self._is_asking_all
            else [index for index in self._rich if index in self._nodes and index not in self._recalling]
        )
        if not rich:
            await self._offer_all()
            return
        share, rest = divmod(missing, len(rich))
        for place, index in enumerate(rich):
            await self._add(index, share + (place < rest))
        self._rich = [*self._rich[1:], *self._rich[:1]]
        self._look_again()

    async def probe(self) -> None:
        """A moment has passed: who has not used what it was offered has nothing more, so everybody is asked."""
        if self.wanted and not self._is_closed:
            self._rich = [index for index in self._rich if not self._offered.get(index)]
            await self._offer_all()

    async def _offer_all(self) -> None:
        self._is_asking_all = True
        for index in list(self._nodes):
            if index not in self._recalling:
                await self._add(index, self.wanted - self._offered[index])

    async def _add(self, index: int, count: int) -> None:
        if count > 0:
            self._offered[index] += count
            await self._nodes[index].want(count)
