"""Faults of connections, made by proxies or in network namespaces.

A fault that affected no traffic does not count as fired.
"""

import asyncio
import functools
import random
from collections.abc import Callable
from dataclasses import dataclass

from holdfast_lab.torture.faults import namespaces
from holdfast_lab.torture.faults.targets import SECONDS_MAX, SECONDS_MIN, some_time
from holdfast_lab.torture.faults.wait_until import felt
from holdfast_lab.torture.ports import Arena, NamespacedArena, NotNowError, Proxy, ProxyEffects

_DELAY_S = (0.005, 1.5)
#: Clients that were cut off reconnect within this time.
_NEW_S = 0.5
_CUTS_MAX = 4
_PAUSE_S_MAX = 0.5
_CUT_AFTERWARDS = 0.5
#: The number of resets, and the seconds between two: shorter than a lease, and reconnecting workers are reset again.
_RESETS = (4, 7)
_BETWEEN_S = (0.3, 1.5)
_WORKERS = "workers"


@dataclass(slots=True)
class ProxyFault:
    """One way to disturb a proxy, and how to undo it."""

    kind: str
    spoil: Callable[[Proxy], None]
    mend: Callable[[Proxy], None]
    #: Counts its effects.
    effects: Callable[[ProxyEffects], int]
    #: Whether it affects only new connections.
    needs_new: bool = False
    #: Whether it leaves connections on which no data arrives.
    leaves_deaf: bool = False
    #: The proxy that it never affects.
    spares: str = ""

    def lacking(self, arena: Arena) -> str:
        """Returns the reason why it cannot be fired, or an empty string."""
        return no_proxies(arena) or ("" if self._proxies(arena) else f"only {self.spares} connect through a proxy")

    def _proxies(self, arena: Arena) -> list[str]:
        return sorted(set(arena.proxies) - {self.spares})

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Fires the fault; returns the proxy and the duration."""
        name = draw.choice(self._proxies(arena))
        proxy = arena.proxies[name]
        seconds = some_time(draw, _NEW_S if self.needs_new else SECONDS_MIN, SECONDS_MAX)
        # The ends must notice dead connections themselves; in half of the cases they are reset instead.
        is_cut_afterwards = self.leaves_deaf and draw.random() < _CUT_AFTERWARDS
        before = self.effects(proxy.effects())
        try:
            self.spoil(proxy)
            if self.needs_new:
                proxy.cut()
            await felt(lambda: self.effects(proxy.effects()), before, seconds, _road(name))
        finally:
            self.mend(proxy)
            if is_cut_afterwards:
                proxy.cut()
        return f"{_road(name)}, {seconds:.1f} s"


class _AnyProxyFault:
    """A fault that works on any proxy."""

    def lacking(self, arena: Arena) -> str:
        """Returns the reason why it cannot be fired, or an empty string."""
        return no_proxies(arena)


class Delay(_AnyProxyFault):
    """Delays all traffic of a proxy for a while."""

    kind = "delay"

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Fires the fault; returns the proxy, the delay, and the duration."""
        name = draw.choice(sorted(arena.proxies))
        proxy = arena.proxies[name]
        delay_s, seconds = some_time(draw, *_DELAY_S), some_time(draw)
        before = proxy.effects().late_bytes
        try:
            proxy.delay(delay_s)
            await felt(lambda: proxy.effects().late_bytes, before, seconds, _road(name))
        finally:
            proxy.delay(0.0)
        return f"{_road(name)}, {delay_s * 1_000:.0f} ms each way for {seconds:.1f} s"


class Cut(_AnyProxyFault):
    """Resets all connections of a proxy, a few times."""

    kind = "cut"

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Fires the fault; returns the proxy, the number of resets, and the number of connections."""
        name = draw.choice(sorted(arena.proxies))
        proxy = arena.proxies[name]
        before = proxy.effects().cut
        times = draw.randint(1, _CUTS_MAX)
        proxy.cut()
        for _ in range(times - 1):
            await asyncio.sleep(draw.random() * _PAUSE_S_MAX)
            proxy.cut()
        if not (count := proxy.effects().cut - before):
            raise NotNowError(f"{_road(name)}: no open connections")
        return f"{_road(name)}, {times} times, {count} connections"


class Resets:
    """Resets the connections of all workers repeatedly; in between the network works, and both ends are healthy."""

    kind = "resets"

    def lacking(self, arena: Arena) -> str:
        """Returns the reason why it cannot be fired, or an empty string."""
        return "" if _WORKERS in arena.proxies else f"the workers of {arena.topology} do not connect through a proxy"

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Fires the fault; returns the number of resets that found a connection."""
        proxy = arena.proxies[_WORKERS]
        times = draw.randint(*_RESETS)
        hits = count = 0
        for _ in range(times):
            before = proxy.effects().cut
            proxy.cut()
            count += proxy.effects().cut - before
            hits += proxy.effects().cut > before
            await asyncio.sleep(draw.uniform(*_BETWEEN_S))
        if hits < _RESETS[0]:
            raise NotNowError(f"{_road(_WORKERS)}: {hits} of {times} resets found a connection")
        return f"{_road(_WORKERS)}, {hits} times, {count} connections"


def no_proxies(arena: Arena) -> str:
    """Returns the reason why no connection can be disturbed, or an empty string."""
    return "" if arena.proxies else f"no process of {arena.topology} connects through a proxy"


def _road(name: str) -> str:
    return f"road of the {name}"


def _swallow(*, towards_server: bool = False, towards_client: bool = False) -> Callable[[Proxy], None]:
    return lambda proxy: proxy.swallow(towards_server=towards_server, towards_client=towards_client)


def _swallowed(effects: ProxyEffects) -> int:
    return effects.swallowed_bytes


BAD_ROADS = (
    ProxyFault(
        "cut-after-send",
        spoil=lambda proxy: proxy.cut_after_send(is_on=True),
        mend=lambda proxy: proxy.cut_after_send(is_on=False),
        effects=lambda effects: effects.unanswered,
    ),
    ProxyFault(
        "duplicate",
        spoil=lambda proxy: proxy.duplicate(is_on=True),
        mend=lambda proxy: proxy.duplicate(is_on=False),
        effects=lambda effects: effects.doubled_bytes,
        needs_new=True,
        # A duplicated session means two workers with one id; the product ends the first of them, as documented.
        spares="workers",
    ),
    ProxyFault(
        "swallow-to-server", spoil=_swallow(towards_server=True), mend=_swallow(), effects=_swallowed, leaves_deaf=True
    ),
    ProxyFault(
        "swallow-to-client", spoil=_swallow(towards_client=True), mend=_swallow(), effects=_swallowed, leaves_deaf=True
    ),
)


class Partition:
    """Drops the packets of one direction between a process in a namespace and the rest."""

    kind = "partition"

    def lacking(self, arena: Arena) -> str:
        """Returns the reason why it cannot be fired, or an empty string."""
        if reason := namespaces.lacking():
            return reason
        if not isinstance(arena, NamespacedArena) or not arena.islands:
            return f"no process of {arena.topology} has its own network namespace"
        return ""

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Fires the fault; returns the process, the order of directions, and the durations."""
        assert isinstance(arena, NamespacedArena), "see lacking"
        name = draw.choice(sorted(arena.islands))
        island = arena.islands[name]
        is_server_first = draw.random() < 1 / 2
        times = [some_time(draw), some_time(draw)]
        said: list[str] = []
        try:
            for is_towards_server, seconds in zip((is_server_first, not is_server_first), times, strict=True):
                island.cut(towards_server=is_towards_server, towards_client=not is_towards_server)
                sent = functools.partial(island.sent, towards_server=is_towards_server)
                await felt(sent, sent(), seconds, name)
                said.append(f"nothing {'from' if is_towards_server else 'to'} it for {seconds:.1f} s")
        except NotNowError:
            if not said:
                raise
        finally:
            island.mend()
        return f"{name}: {', then '.join(said)}"
