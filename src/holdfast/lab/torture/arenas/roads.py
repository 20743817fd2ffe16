"""The way that somebody takes to an arena: one proxy, or several that are good and bad together.

Its addresses are known before it is opened, and stay.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from holdfast.lab.torture.faults.proxy import TcpProxy
from holdfast.lab.torture.ports import Harm


class Roads:
    """Leads from each of some places to a place of its own. Implements the port `Proxy`."""

    def __init__(self, places: Sequence[str]) -> None:
        """Where whoever takes it connects to."""
        self.places = places
        self.address = ",".join(places)
        self._proxies: list[TcpProxy] = []

    async def open(self, targets: Sequence[str]) -> None:
        """Leads to these, in the order of the places; nobody needs to be there yet."""
        for place, target in zip(self.places, targets, strict=True):
            host, _, port = place.rpartition(":")
            target_host, _, target_port = target.rpartition(":")
            self._proxies.append(await TcpProxy.open(target_host, int(target_port), int(port), host))

    async def close(self) -> None:
        """Resets what is left."""
        proxies, self._proxies = self._proxies, []
        ends = await asyncio.gather(*(proxy.close() for proxy in proxies), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    def delay(self, seconds: float) -> None:
        """Every byte takes so much longer, both ways; 0 mends it."""
        for proxy in self._proxies:
            proxy.delay(seconds)

    def cut_after_send(self, *, is_on: bool) -> None:
        """What is said arrives, and the connection is reset before any answer comes back."""
        for proxy in self._proxies:
            proxy.cut_after_send(is_on=is_on)

    def duplicate(self, *, is_on: bool) -> None:
        """New connections reach the other end twice."""
        for proxy in self._proxies:
            proxy.duplicate(is_on=is_on)

    def swallow(self, *, towards_server: bool, towards_client: bool) -> None:
        """Bytes of a direction vanish while the connection stays open."""
        for proxy in self._proxies:
            proxy.swallow(towards_server=towards_server, towards_client=towards_client)

    def cut(self) -> None:
        """Resets every connection there is."""
        for proxy in self._proxies:
            proxy.cut()

    def harm(self) -> Harm:
        """What all of them have done so far."""
        counts = [msgspec.structs.astuple(proxy.harm()) for proxy in self._proxies]
        return Harm(*map(sum, zip(*counts, strict=True)))
