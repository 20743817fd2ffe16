"""Roads that are bad for a while: what a proxy can do to those who use it.

A road that nobody used while it was bad has harmed nobody: the fault was not fired.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.lab.torture.faults.targets import SECONDS_MAX, SECONDS_MIN, some_time
from holdfast.lab.torture.faults.watching import felt
from holdfast.lab.torture.ports import Arena, Harm, NotNowError, Proxy

_DELAY_S = (0.005, 1.5)
#: Who was cut off comes back within this time.
_NEW_S = 0.5
_CUTS_MAX = 4
_PAUSE_S_MAX = 0.5
_CUT_AFTERWARDS = 0.5
#: Resets in a row, and what lies between two of them: a lease is longer than many, and whoever returns is reset again.
_RESETS = (4, 7)
_BETWEEN_S = (0.3, 1.5)
_WORKERS = "workers"


@dataclass(slots=True)
class BadRoad:
    """One way in which a road can be bad, and how it is mended."""

    kind: str
    spoil: Callable[[Proxy], None]
    mend: Callable[[Proxy], None]
    #: What it does to whoever uses the road.
    harm: Callable[[Harm], int]
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
        seconds = some_time(draw, _NEW_S if self.needs_new else SECONDS_MIN, SECONDS_MAX)
        # Whoever notices by itself that it is deaf is mended by itself; the others are helped now and then.
        is_cut_afterwards = self.leaves_deaf and draw.random() < _CUT_AFTERWARDS
        before = self.harm(proxy.harm())
        try:
            self.spoil(proxy)
            if self.needs_new:
                proxy.cut()
            await felt(lambda: self.harm(proxy.harm()), before, seconds, _road(name))
        finally:
            self.mend(proxy)
            if is_cut_afterwards:
                proxy.cut()
        return f"{_road(name)}, {seconds:.1f} s"


class _OfRoads:
    """A fault of any road."""

    def lacking(self, arena: Arena) -> str:
        """Why it cannot be fired."""
        return no_proxies(arena)


class Delay(_OfRoads):
    """Everything on a road takes longer for a while."""

    kind = "delay"

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Which road, by how much, and for how long."""
        name = draw.choice(sorted(arena.proxies))
        proxy = arena.proxies[name]
        delay_s, seconds = some_time(draw, *_DELAY_S), some_time(draw)
        before = proxy.harm().late_bytes
        try:
            proxy.delay(delay_s)
            await felt(lambda: proxy.harm().late_bytes, before, seconds, _road(name))
        finally:
            proxy.delay(0.0)
        return f"{_road(name)}, {delay_s * 1_000:.0f} ms each way for {seconds:.1f} s"


class Cut(_OfRoads):
    """All connections of a road are reset, a few times."""

    kind = "cut"

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Which road, how often, and how many connections that ended."""
        name = draw.choice(sorted(arena.proxies))
        proxy = arena.proxies[name]
        before = proxy.harm().cut
        times = draw.randint(1, _CUTS_MAX)
        proxy.cut()
        for _ in range(times - 1):
            await asyncio.sleep(draw.random() * _PAUSE_S_MAX)
            proxy.cut()
        if not (count := proxy.harm().cut - before):
            raise NotNowError(f"{_road(name)}: there are no connections")
        return f"{_road(name)}, {times} times, {count} connections"


class Resets:
    """The connections of all workers are reset again and again; in between the road is good, and both ends are well."""

    kind = "resets"

    def lacking(self, arena: Arena) -> str:
        """Why it cannot be fired."""
        return "" if _WORKERS in arena.proxies else f"the workers of {arena.topology} go through no proxy"

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """How often; a reset that found no connection does not count."""
        proxy = arena.proxies[_WORKERS]
        times = draw.randint(*_RESETS)
        hits = count = 0
        for _ in range(times):
            before = proxy.harm().cut
            proxy.cut()
            count += proxy.harm().cut - before
            hits += proxy.harm().cut > before
            await asyncio.sleep(draw.uniform(*_BETWEEN_S))
        if hits < _RESETS[0]:
            raise NotNowError(f"{_road(_WORKERS)}: {hits} of {times} resets found a connection")
        return f"{_road(_WORKERS)}, {hits} times, {count} connections"


def no_proxies(arena: Arena) -> str:
    """Why no road can be made bad."""
    return "" if arena.proxies else f"nobody in {arena.topology} goes through a proxy"


def _road(name: str) -> str:
    return f"road of the {name}"


def _swallow(*, towards_server: bool = False, towards_client: bool = False) -> Callable[[Proxy], None]:
    return lambda proxy: proxy.swallow(towards_server=towards_server, towards_client=towards_client)


def _swallowed(harm: Harm) -> int:
    return harm.swallowed_bytes


BAD_ROADS = (
    BadRoad(
        "cut-after-send",
        spoil=lambda proxy: proxy.cut_after_send(is_on=True),
        mend=lambda proxy: proxy.cut_after_send(is_on=False),
        harm=lambda harm: harm.unanswered,
    ),
    BadRoad(
        "duplicate",
        spoil=lambda proxy: proxy.duplicate(is_on=True),
        mend=lambda proxy: proxy.duplicate(is_on=False),
        harm=lambda harm: harm.doubled_bytes,
        needs_new=True,
        # A session that comes twice is two workers under one id, and the product promises that the first of them ends.
        spares="workers",
    ),
    BadRoad(
        "swallow-to-server", spoil=_swallow(towards_server=True), mend=_swallow(), harm=_swallowed, leaves_deaf=True
    ),
    BadRoad(
        "swallow-to-client", spoil=_swallow(towards_client=True), mend=_swallow(), harm=_swallowed, leaves_deaf=True
    ),
)
