"""The proxies between clients or workers and an arena: one or several, which share one condition.

The addresses are known before the proxies are opened, and do not change.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

import msgspec

from holdfast_lab.torture.faults.proxy import TcpProxy, Upstream
from holdfast_lab.torture.ports import ProxyEffects


class ClientProxies:
    """Forwards each place to its own target; implements the port `Proxy`."""

    def __init__(self, places: Sequence[str]) -> None:
        """`places` are the addresses to connect to."""
        self.places = places
        self.address = ",".join(places)
        self._proxies: list[TcpProxy] = []

    async def open(self, targets: Sequence[str]) -> None:
        """Forwards to these targets, in the order of the places; the targets need not listen yet."""
        await self.open_to([partial(_address, target) for target in targets])

    async def open_to(self, upstreams: Sequence[Upstream]) -> None:
        """Forwards to targets whose addresses may change."""
        for place, upstream in zip(self.places, upstreams, strict=True):
            host, port = _address(place)
            self._proxies.append(await TcpProxy.open_to(upstream, port, host))

    async def close(self) -> None:
        """Stops listening, and resets the remaining connections."""
        proxies, self._proxies = self._proxies, []
        ends = await asyncio.gather(*(proxy.close() for proxy in proxies), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    def delay(self, seconds: float) -> None:
        """Delays every byte by this time, both ways; 0 ends the delay."""
        for proxy in self._proxies:
            proxy.delay(seconds)

    def cut_after_send(self, *, is_on: bool) -> None:
        """Delivers requests, and resets the connection before any response arrives."""
        for proxy in self._proxies:
            proxy.cut_after_send(is_on=is_on)

    def duplicate(self, *, is_on: bool) -> None:
        """Delivers the bytes of new connections to the target twice."""
        for proxy in self._proxies:
            proxy.duplicate(is_on=is_on)

    def swallow(self, *, towards_server: bool, towards_client: bool) -> None:
        """Drops the bytes of a direction, while the connection stays open."""
        for proxy in self._proxies:
            proxy.swallow(towards_server=towards_server, towards_client=towards_client)

    def cut(self) -> None:
        """Resets all open connections."""
        for proxy in self._proxies:
            proxy.cut()

    def effects(self) -> ProxyEffects:
        """The sum of the effects of all proxies so far."""
        counts = [msgspec.structs.astuple(proxy.effects()) for proxy in self._proxies]
        return ProxyEffects(*map(sum, zip(*counts, strict=True)))


def _address(place: str) -> tuple[str, int]:
    host, _, port = place.rpartition(":")
    return host, int(port)
