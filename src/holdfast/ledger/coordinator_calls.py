"""Coroutines over the coordinator's callbacks, which raise its refusals as errors."""

import asyncio
from collections.abc import Callable

from holdfast.core.commands import AnyCommand, Refusal
from holdfast.errors import HoldfastError
from holdfast.ledger.coordinator import CommandLane, Coordinator, Read
from holdfast.ledger.group_commit import Done


class CoordinatorCaller:
    """Calls one coordinator, from the event loop on which this object was created."""

    __slots__ = ("_coordinator", "_loop")

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._loop = asyncio.get_running_loop()

    async def call(self, lane: CommandLane, command: AnyCommand) -> object:
        """Returns the reply to a command when it is durable."""
        return await self.awaited(lambda done: self._coordinator.call(lane, command, done))

    async def hear(self, command: AnyCommand) -> object:
        """Returns the reply to a heartbeat without waiting for the disk."""
        return await self.awaited(lambda done: self._coordinator.hear(command, done))

    async def read(self, lane: CommandLane, query: Read) -> object:
        """Returns the answer to a query when the state that it read is durable."""
        return await self.awaited(lambda done: self._coordinator.read(lane, query, done))

    async def awaited(self, begin: Callable[[Done], Callable[[], None] | None]) -> object:
        """Starts a call that answers through a callback, and returns its answer; raises an error or a refusal.

        `begin` may return a function that gives the call up, which is used if the caller is canceled.
        """
        future = self._loop.create_future()
        give_up = begin(_settler(future))
        try:
            reply = await future
        except asyncio.CancelledError:
            if give_up is not None:
                give_up()
            raise
        return _unwrap(reply)


def _settler(future: asyncio.Future[object]) -> Callable[[object], None]:
    def settle(reply: object) -> None:
        if not future.done():  # the caller may have been canceled
            future.set_result(reply)

    return settle


def _unwrap(reply: object) -> object:
    if isinstance(reply, Refusal):
        raise reply.error()
    if isinstance(reply, HoldfastError):
        raise reply
    return reply
