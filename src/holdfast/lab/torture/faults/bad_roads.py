"""Roads that are bad for a while: what a proxy can do to those who use it."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.lab.torture.faults.targets import some_time
from holdfast.lab.torture.ports import Arena, Proxy

_DELAY_S = (0.005, 1.5)
_CUTS_MAX = 4
_PAUSE_S_MAX = 0.5
_CUT_AFTERWARDS = 0.5


@dataclass(slots=True)
class BadRoad:
    """One way in which a road can be bad, and how it is mended."""

    kind: str
    spoil: Callable[[Proxy], None]
    mend: Callable[[Proxy], None]
    #: Whether it is only seen by connections that begin while it is bad.
    needs_new: bool = False
    #: Whether connections are left that nobody hears anything on.
    leaves_deaf: bool = False
    #: Whose road is left alone.
    spares: str = ""

    def lacking(self, arena: Arena) -> str:
        """Why it cannot be fired."""
        return no_proxies(arena) or ("" if self._roads(arena) else f"nobody but {self.spares} goes through a proxy")

    def _roads(self, arena: Arena) -> list[str]:
        return sorted(set(arena.proxies) - {self.spares})

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Which road, and for how long."""
        name = draw.choice(self._roads(arena))
        proxy = arena.proxies[name]
        seconds = some_time(draw)
        # Whoever notices by itself that it is deaf is mended by itself; the others are helped now and then.
        is_cut_afterwards = self.leaves_deaf and draw.random() < _CUT_AFTERWARDS
        try:
            self.spoil(proxy)
            if self.needs_new:
                proxy.cut()
            await asyncio.sleep(seconds)
        finally:
            self.mend(proxy)
            if is_cut_afterwards:
                proxy.cut()
        return f"road of the {name}, {seconds:.1f} s"


class Delay:
    """Everything on a road takes longer for a while."""

    kind = "delay"

    def lacking(self, arena: Arena) -> str:
        """Why it cannot be fired."""
        return no_proxies(arena)

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Which road, by how much, and for how long."""
        name = draw.choice(sorted(arena.proxies))
        delay_s, seconds = some_time(draw, *_DELAY_S), some_time(draw)
        try:
            arena.proxies[name].delay(delay_s)
            await asyncio.sleep(seconds)
        finally:
            arena.proxies[name].delay(0.0)
        return f"road of the {name}, {delay_s * 1_000:.0f} ms each way for {seconds:.1f} s"


class Cut:
    """All connections of a road are reset, a few times."""

    kind = "cut"

    def lacking(self, arena: Arena) -> str:
        """Why it cannot be fired."""
        return no_proxies(arena)

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Which road, and how often."""
        name = draw.choice(sorted(arena.proxies))
        times = draw.randint(1, _CUTS_MAX)
        arena.proxies[name].cut()
        for _ in range(times - 1):
            await asyncio.sleep(draw.random() * _PAUSE_S_MAX)
            arena.proxies[name].cut()
        return f"road of the {name}, {times} times"


def no_proxies(arena: Arena) -> str:
    """Why no road can be made bad."""
    return "" if arena.proxies else f"nobody in {arena.topology} goes through a proxy"


def _swallow(*, towards_server: bool = False, towards_client: bool = False) -> Callable[[Proxy], None]:
    return lambda proxy: proxy.swallow(towards_server=towards_server, towards_client=towards_client)


BAD_ROADS = (
    BadRoad(
        "cut-after-send",
        spoil=lambda proxy: proxy.cut_after_send(is_on=True),
        mend=lambda proxy: proxy.cut_after_send(is_on=False),
    ),
    BadRoad(
        "duplicate",
        spoil=lambda proxy: proxy.duplicate(is_on=True),
        mend=lambda proxy: proxy.duplicate(is_on=False),
        needs_new=True,
        # A session that comes twice is two workers under one id, and the product promises that the first of them ends.
        spares="workers",
    ),
    BadRoad("swallow-to-server", spoil=_swallow(towards_server=True), mend=_swallow(), leaves_deaf=True),
    BadRoad("swallow-to-client", spoil=_swallow(towards_client=True), mend=_swallow(), leaves_deaf=True),
)
