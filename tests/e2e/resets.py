"""A TCP proxy in a thread of the test, which resets all its connections on request."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator

from holdfast_lab.torture.faults.proxy import TcpProxy


class ResettingProxy:
    """Forwards connections from `address` to the target."""

    def __init__(self, proxy: TcpProxy, loop: asyncio.AbstractEventLoop) -> None:
        self._proxy = proxy
        self._loop = loop
        self.address = proxy.address

    @property
    def accepted(self) -> int:
        """The number of connections accepted so far."""
        return self._proxy.traffic.connections

    def reset(self) -> int:
        """Resets every connection; returns how many there were."""
        return asyncio.run_coroutine_threadsafe(self._reset(), self._loop).result()

    async def _reset(self) -> int:
        count = self._proxy.connections
        self._proxy.cut()
        return count


@contextlib.contextmanager
def resetting_proxy(target: str) -> Iterator[ResettingProxy]:
    """Yields a proxy, which is closed after the block."""
    host, _, port = target.rpartition(":")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        proxy = asyncio.run_coroutine_threadsafe(TcpProxy.open(host, int(port)), loop).result()
        try:
            yield ResettingProxy(proxy, loop)
        finally:
            asyncio.run_coroutine_threadsafe(proxy.close(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
