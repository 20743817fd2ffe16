"""Several nodes in their fixed order: who owns a key, whose turn it is, and how all of them are asked at once."""

import asyncio
import contextlib
import os
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

from holdfast.client.access import ANYBODY, Access
from holdfast.client.grpc_transport import GrpcCarrier
from holdfast.client.remote import RemoteJobs
from holdfast.client.retry_policy import RETRYABLE, Once, Retrying
from holdfast.client.transport import LineCarrier
from holdfast.core.owner import mint_owned, owner_index
from holdfast.errors import (
    FailedPreconditionError,
    HoldfastError,
    InvalidArgumentError,
    PermissionDeniedError,
    UnavailableError,
)
from holdfast.ports import Stats

T = TypeVar("T")

#: Makes the connection to an address.
Carry = Callable[[str, Access], LineCarrier]


class Node:
    """One node, and a connection to it that is opened when it is first asked."""

    def __init__(self, index: int, nodes: int, address: str, carrier: LineCarrier, retrying: Retrying) -> None:
        self.index = index
        self.address = address
        self._place = f"{index} of {nodes}"
        self._carrier = carrier
        self.jobs = RemoteJobs(carrier, retrying)
        self._probe = RemoteJobs(self._carrier, Once())
        #: The line on which it has answered.
        self._answered: object | None = None
        self._ids = mint_owned(os.urandom, index, nodes)

    def mint(self) -> str:
        """A fresh id that this node owns."""
        return next(self._ids)

    async def is_there(self) -> bool:
        """Whether it answers; asked only of one that has not yet answered on the line that is open now.

        Nothing that must not happen twice is sent to a node before: who never answered has surely not taken it.
        """
        line = self._carrier.line
        if line is not None and line is self._answered:
            return True
        try:
            self._refuse_if_elsewhere(await self._probe.stats())
        except PermissionDeniedError:
            """It answers, and only does not tell."""
        except HoldfastError as error:
            if error.code not in RETRYABLE:
                raise
            return False
        self._answered = self._carrier.line
        return True

    def _refuse_if_elsewhere(self, stats: Stats) -> None:
        """A list in another order would mean other owners: keys would be looked for where they are not."""
        place = f"{stats.node_index} of {stats.nodes}"
        if stats.nodes and place != self._place:
            raise FailedPreconditionError(
                f"{self.address} is node {place}, but stands in the list as node {self._place};"
                " name all nodes in the order in which they were started",
                reason="NODE_MISPLACED",
            )

    async def close(self) -> None:
        """Ends the connection."""
        await self.jobs.close()


class NodeSet:
    """All of them. The order is that of the addresses, and the same for everybody who routes."""

    def __init__(
        self,
        addresses: Sequence[str],
        access: Access = ANYBODY,
        *,
        carry: Carry = GrpcCarrier,
        retrying: Retrying | None = None,
    ) -> None:
        """`carry` makes the connection to an address, `retrying` says which calls are repeated."""
        self._nodes = [
            Node(index, len(addresses), address, carry(address, access), retrying or Retrying())
            for index, address in enumerate(addresses)
        ]
        self._turn = random.randrange(len(addresses))  # many clients of one job each must not all begin with the same

    def __getitem__(self, index: int) -> Node:
        return self._nodes[index]

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def owner(self, key: str) -> Node:
        """Who owns a job id, a request id or a unique key."""
        try:
            return self._nodes[owner_index(key, len(self._nodes))]
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(f"this cannot be sent: {error}", reason="REQUEST_INVALID") from error

    async def in_turn(self, count: int) -> list[Node]:
        """Who is next, so many times; whoever does not answer is passed over as long as anybody else does."""
        first, self._turn = self._turn, (self._turn + count) % len(self)
        if count == 1:
            return [await self._next_of(first)]
        answers = await asyncio.gather(*(node.is_there() for node in self._nodes))
        there = [node for node, is_there in zip(self._nodes, answers, strict=True) if is_there] or self._nodes
        chosen = [self._nodes[(first + offset) % len(self)] for offset in range(count)]
        return [node if node in there else there[number % len(there)] for number, node in enumerate(chosen)]

    async def _next_of(self, first: int) -> Node:
        for offset in range(len(self)):
            node = self._nodes[(first + offset) % len(self)]
            if await node.is_there():
                return node
        return self._nodes[first]

    async def all(self, ask: Callable[[Node], Awaitable[T]], nodes: Sequence[Node] | None = None) -> list[T]:
        """What each answers, asked side by side; who does not answer is named, for half an answer is none."""
        asked = self._nodes if nodes is None else nodes
        answers = await asyncio.gather(*(ask(node) for node in asked), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not _may_pass(answer):
                raise answer
        silent = [
            node.address for node, answer in zip(asked, answers, strict=True) if isinstance(answer, HoldfastError)
        ]
        if silent:
            raise missing(silent)
        return [answer for answer in answers if not isinstance(answer, BaseException)]

    async def close(self) -> None:
        """Ends all connections."""
        with contextlib.suppress(HoldfastError):
            await asyncio.gather(*(node.close() for node in self._nodes))


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, HoldfastError) and error.code in RETRYABLE


def missing(addresses: Sequence[str]) -> UnavailableError:
    """Some nodes do not answer, and what they have is missing."""
    who = ", ".join(addresses)
    verb = "does" if len(addresses) == 1 else "do"
    return UnavailableError(
        f"{who} {verb} not answer, and a part of the jobs is there; connect to one node alone to see what it has",
        reason="NODES_MISSING",
        details={"nodes": who},
    )
