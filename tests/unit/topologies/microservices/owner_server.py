"""An owner service in the test's process: a keeper, a real gRPC server on a free port, and a channel to it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from holdfast.errors import HoldfastError
from holdfast.server.grpc.request_decoder import TolerantServer
from holdfast.testing.clock import ManualClock
from holdfast.topologies.microservices.backend import coordinator_client
from holdfast.topologies.microservices.grpc_errors import error_of
from holdfast.topologies.microservices.services import heartbeats
from holdfast.topologies.microservices.services.internal_server import ServiceServer
from holdfast.topologies.microservices.services.owner import StateOwner
from holdfast.topologies.microservices.services.owner_journal import StateMachine
from tests.unit.test_layers import imports, is_within, sources
from tests.unit.topologies.microservices.word_owner import COMPACT_BYTES, compacting

#: Only a broken test waits this long.
DEADLINE_S = 30.0
DEADLINE_MS = 30_000


@contextmanager
def patient() -> Iterator[None]:
    """Raises the timeouts of workers for a block, so that a slow machine does not fail a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heartbeats, "_PATIENCE_S", DEADLINE_S)
        for name in ("_HEARTBEAT_S", "_FETCH_S", "_REPORT_S"):
            patch.setattr(coordinator_client, name, DEADLINE_S)
        yield


class Owner:
    """A served owner; `clock` controls its time."""

    def __init__(self, state_owner: StateOwner, channel: grpc.aio.Channel, clock: ManualClock) -> None:
        self.state_owner = state_owner
        self.channel = channel
        self.clock = clock

    async def refusal(self, call: Awaitable[object]) -> HoldfastError:
        """Returns the error of the call; asserts that nothing changed."""
        before = self.state_owner.position, self.state_owner.machine.digest
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call
        assert (self.state_owner.position, self.state_owner.machine.digest) == before
        return error_of(refused.value)

    async def raw(self, method: str, data: bytes) -> bytes:
        """Sends any bytes to a method."""
        answer: bytes = await self.channel.unary_unary(method, None, None)(data, timeout=DEADLINE_S)
        return answer


@asynccontextmanager
async def served(
    machine: StateMachine,
    register: Callable[[StateOwner, TolerantServer], Any],
    data: Path | None,
    *,
    clock: ManualClock | None = None,
    compact_bytes: int = COMPACT_BYTES,
) -> AsyncIterator[Owner]:
    """Serves until the block ends; then closes everything, so that the directory can be served again."""
    clock = clock or ManualClock()
    failures: list[BaseException] = []
    state_owner = StateOwner.open(
        machine,
        data,
        clock=clock,
        loop=asyncio.get_running_loop(),
        fatal=failures.append,
        snapshots=compacting(compact_bytes),
    )
    server = ServiceServer("the owner", {})
    register(state_owner, server.handlers)
    address = await server.start("127.0.0.1", 0)
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            yield Owner(state_owner, channel, clock)
    finally:
        await server.stop(DEADLINE_S)
        await state_owner.close()
    assert not failures


#: They read the data of owners, and serve nothing.
_READERS = frozenset({"topologies/microservices/services/owner_restore.py", "lab/torture/arenas/microservices.py"})


def servers_with(root: Path, module: str) -> set[str]:
    """Returns the files of the product that import a module of it, and serve with it."""
    return {
        file
        for file, text in sources(root).items()
        if any(is_within(name, f"holdfast.{module}") for name in imports(file, text))
    } - _READERS
