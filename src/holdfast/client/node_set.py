"""Several nodes in their fixed order: the owner of a key, round-robin, and calls to all nodes at once."""

import asyncio
import contextlib
import os
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

from holdfast.client.access import NO_CREDENTIALS, Access
from holdfast.client.discovery import EndpointOf, missing
from holdfast.client.endpoints import Endpoint, TcpEndpoint
from holdfast.client.remote import RemoteJobs
from holdfast.client.retry_policy import RETRYABLE, NoRetryPolicy, RetryPolicy
from holdfast.client.wire_transport import ReconnectingTransport
from holdfast.core.owner import mint_owned, owner_index
from holdfast.errors import (
    FailedPreconditionError,
    HoldfastError,
    InvalidArgumentError,
    PermissionDeniedError,
)
from holdfast.ports import Stats

T = TypeVar("T")


class Node:
    """One node, and a connection to it that the first call opens."""

    def __init__(self, index: int, nodes: int, address: str, endpoint: Endpoint, retry_policy: RetryPolicy) -> None:
        self.index = index
        self.address = address
        self._place = f"{index} of {nodes}"
        self._transport = ReconnectingTransport(endpoint)
        self.jobs = RemoteJobs(self._transport, retry_policy)
        self._probe = RemoteJobs(self._transport, NoRetryPolicy())
        #: The connection on which the node has answered.
        self._answered: object | None = None
        self._ids = mint_owned(os.urandom, index, nodes)

    def mint(self) -> str:
        """Returns a fresh id that this node owns."""
        return next(self._ids)

    async def is_there(self) -> bool:
        """Whether the node answers; it is called only if it has not yet answered on the current connection.

        A request that must not take effect twice is sent only after this check, so that it can go to another node
        instead: a node that never answered cannot have accepted it.
        """
        line = self._transport.line
        if line is not None and line is self._answered:
            return True
        try:
            self._refuse_if_elsewhere(await self._probe.stats())
        except PermissionDeniedError:
            """The node answers, but does not permit this call."""
        except HoldfastError as error:
            if error.code not in RETRYABLE:
                raise
            return False
        self._answered = self._transport.line
        return True

    def _refuse_if_elsewhere(self, stats: Stats) -> None:
        """Raises an error if the list has another order: keys would be routed to nodes that do not own them."""
        place = f"{stats.node_index} of {stats.nodes}"
        if stats.nodes and place != self._place:
            raise FailedPreconditionError(
                f"{self.address} is node {place}, but is node {self._place} in the list;"
                " list all nodes in the order in which they were started",
                reason="NODE_MISPLACED",
            )

    async def close(self) -> None:
        """Closes the connection."""
        await self.jobs.close()


class NodeSet:
    """All nodes, in the order of the addresses. Every client must use the same order."""

    def __init__(
        self,
        addresses: Sequence[str],
        access: Access = NO_CREDENTIALS,
        *,
        endpoint: EndpointOf = TcpEndpoint,
        retry_policy: RetryPolicy | None = None,
    ) -> None:
        """`endpoint` returns the endpoint of an address."""
        self._nodes = [
            Node(index, len(addresses), address, endpoint(address, access), retry_policy or RetryPolicy())
            for index, address in enumerate(addresses)
        ]
        self._turn = random.randrange(len(addresses))  # spreads many clients that submit one job each

    def __getitem__(self, index: int) -> Node:
        return self._nodes[index]

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def owner(self, key: str) -> Node:
        """Returns the owner of a job id, a request id or a unique key."""
        try:
            return self._nodes[owner_index(key, len(self._nodes))]
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(f"the request cannot be encoded: {error}", reason="REQUEST_INVALID") from error

    async def in_turn(self, count: int) -> list[Node]:
        """Returns the next `count` nodes in turn; nodes that do not answer are skipped while any other node does."""
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
        """Calls all nodes at once and returns their answers; `UnavailableError` names the nodes that do not answer."""
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
        """Closes all connections."""
        with contextlib.suppress(HoldfastError):
            await asyncio.gather(*(node.close() for node in self._nodes))


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, HoldfastError) and error.code in RETRYABLE
