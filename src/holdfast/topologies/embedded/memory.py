"""`memory://`: a ledger in this process, gone with it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from holdfast.client.link import LinkPorts, Near
from holdfast.ledger.ports import Clock
from holdfast.ports import WorkApi
from holdfast.settings import Settings
from holdfast.topologies.embedded.served_ledger import Serving

T = TypeVar("T")


class MemoryLink:
    """A link to a ledger that nobody else can reach."""

    is_private = True

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.serving = Serving(settings, clock)
        self._is_open = False

    async def _opened(self) -> Serving:
        if not self._is_open:
            self.serving.open_at_once()
            # Nothing was awaited on the way, so nobody opens it twice; and other threads ask only what is open.
            self._is_open = True
        return self.serving

    async def call(
        self, use: Callable[[LinkPorts], Awaitable[T]], *, is_repeatable: bool = True, is_waiting: bool = False
    ) -> T:
        """The answer."""
        return await (await self._opened()).call(use)

    async def stream(self, use: Callable[[LinkPorts], AsyncIterator[T]]) -> AsyncIterator[T]:
        """What a stream yields."""
        async for item in (await self._opened()).stream(use):
            yield item

    def near(self) -> Near | None:
        """The ledger, once it is open."""
        return self.serving.near if self._is_open else None

    async def work(self) -> WorkApi:
        """Sessions without a wire."""
        return (await self._opened()).work()

    async def close(self) -> None:
        """Forgets everything."""
        if self._is_open:
            await self.serving.close()

    def disown(self) -> None:
        """A child begins with an empty ledger of its own."""
