"""Coroutines over the coordinator's callbacks, which raise its refusals as errors."""

import asyncio
from collections.abc import Callable

from holdfast.core.commands import AnyCommand, Refusal
from holdfast.ledger.coordinator import CommandLane, Coordinator, Read


class CoordinatorCaller:
    """Calls one coordinator, from the event loop on which this object was created."""

    __slots__ = ("_coordinator", "_loop")

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._loop = asyncio.get_running_loop()

    async def call(self, lane: CommandLane, command: AnyCommand) -> object:
        """Returns the reply to a command when it is durable."""
        future = self._loop.create_future()
        self._coordinator.call(lane, command, _settler(future))
        return _unwrap(await future)

    async def hear(self, command: AnyCommand) -> object:
        """Returns the reply to a heartbeat without waiting for the disk."""
        future = self._loop.create_future()
        self._coordinator.hear(command, _settler(future))
        return _unwrap(await future)

    async def read(self, lane: CommandLane, query: Read) -> object:
        """Returns the answer to a query when the state that it read is durable."""
        future = self._loop.create_future()
        self._coordinator.read(lane, query, _settler(future))
        return _unwrap(await future)


def _settler(future: asyncio.Future[object]) -> Callable[[object], None]:
    def settle(reply: object) -> None:
        if not future.done():  # the caller may have been canceled
            future.set_result(reply)

    return settle


def _unwrap(reply: object) -> object:
    if isinstance(reply, Refusal):
        raise reply.error()
    return reply
