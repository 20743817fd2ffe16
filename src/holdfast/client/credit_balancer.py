"""Distribution of one worker's credits over several nodes.

A worker wants a number of leases, and it is unknown which nodes have jobs. While jobs arrive, the credits are divided
among the nodes that granted leases recently. If those grant nothing for a moment, all credits are offered to every
node. When the credits are used up, the unused offers are recalled, and surplus leases are handed back unrun.

Invariants: the worker receives no more leases than it wants. While nodes still confirm a recall or a release, arrived
leases are held back; they are delivered when all have confirmed, or after a short time if a node does not answer.
"""

from collections.abc import Callable, Collection
from typing import Protocol

from holdfast.ports import Assignment


class CreditChannel(Protocol):
    """Messages about credits to one node. A lost message means that the session with the node has ended."""

    async def want(self, count: int) -> None:
        """Offers credits."""
        ...

    async def recall(self) -> None:
        """Takes unused credits back; the node confirms it through `CreditBalancer.recalled`."""
        ...

    async def release(self, tokens: Collection[int]) -> None:
        """Hands leases back; the node confirms it through `CreditBalancer.returned`."""
        ...


class CreditBalancer:
    """The credits of one worker. `look_again` requests a call of `probe` after a moment."""

    def __init__(self, deliver: Callable[[list[Assignment]], None], look_again: Callable[[], None]) -> None:
        self._deliver = deliver
        self._look_again = look_again
        self.wanted = 0
        self._nodes: dict[int, CreditChannel] = {}
        self._offered: dict[int, int] = {}
        #: Nodes that granted leases recently; the next one in turn is first.
        self._rich: list[int] = []
        #: Whether every node is offered all credits.
        self._is_asking_all = False
        self._recalling: set[int] = set()
        #: Tokens of leases that are being handed back, by node.
        self._returning: dict[int, set[int]] = {}
        self._held_back: list[Assignment] = []
        self._is_closed = False

    @property
    def is_settled(self) -> bool:
        """Whether no recall or release is pending, and no lease is held back."""
        return not self._recalling and not self._returning and not self._held_back

    async def join(self, index: int, offers: CreditChannel) -> None:
        """Adds a node whose session has begun, and offers it credits."""
        self._nodes[index], self._offered[index] = offers, 0
        if not self._is_closed:
            await self._add(index, self.wanted)

    async def leave(self, index: int) -> None:
        """Removes a node whose session has ended; its offers end with the session."""
        self._nodes.pop(index, None)
        self._offered.pop(index, None)
        self._rich = [rich for rich in self._rich if rich != index]
        self._recalling.discard(index)
        self._returning.pop(index, None)
        self._go_on()
        await self._offer()

    async def want(self, count: int) -> None:
        """Adds credits: the worker wants this many more leases."""
        self.wanted += count
        await self._offer()

    def close(self) -> None:
        """Stops offering credits, because the worker drains."""
        self._is_closed = True

    async def arrive(self, index: int, leases: list[Assignment]) -> None:
        """Accepts leases that a node granted, and hands surplus leases back."""
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
            if self._offered.get(index) and index not in self._recalling and not self._is_closed:
                self._offered[index] = 0
                self._recalling.add(index)
                await offers.recall()

    async def recalled(self, index: int) -> None:
        """Records that a node has confirmed a recall: it grants nothing more."""
        self._recalling.discard(index)
        self._go_on()
        await self._offer()

    def returned(self, index: int, tokens: Collection[int]) -> list[int]:
        """Removes revoked leases; returns the tokens of those that the worker has received."""
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
        """Delivers the leases that are held back, without waiting for confirmations."""
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
        """Offers all credits to every node; nodes with unused offers no longer count as having jobs."""
        if self.wanted and not self._is_closed:
            self._rich = [index for index in self._rich if not self._offered.get(index)]
            await self._offer_all()

    async def _offer_all(self) -> None:
        self._is_asking_all = True
        for index in list(self._nodes):
            if index not in self._recalling:
                await self._add(index, self.wanted - self._offered.get(index, 0))

    async def _add(self, index: int, count: int) -> None:
        """Offers credits to a node; it may have left while a message to another one waited."""
        if count > 0 and index in self._nodes:
            self._offered[index] += count
            await self._nodes[index].want(count)
