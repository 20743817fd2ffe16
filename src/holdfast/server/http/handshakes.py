"""Connections on their way to TLS: so many of them, for so long.

Invariant: whoever does not shake hands in time holds no descriptor; who comes beyond the bound takes the place of
whoever is at it for longest.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable

from holdfast import limits
from holdfast.server.auth.certificates import Certificates

_TIME_S = limits.HTTP_HEAD_MS_MAX / 1_000
#: How long nobody is taken when the system has no descriptor left.
_PAUSE_S = 0.1


class Handshakes:
    """Takes connections from a socket that listens. `start`, then `stop`."""

    def __init__(
        self, listening: socket.socket, tls: Certificates, made: Callable[[], asyncio.Protocol], *, most: int
    ) -> None:
        self._listening = listening
        self._most = most
        self._tls = tls
        self._made = made
        #: Oldest first.
        self._shaking: dict[asyncio.Task[None], None] = {}
        self._accepting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Takes them from now on."""
        self._accepting = asyncio.create_task(self._accept())

    async def stop(self) -> None:
        """Takes no more, and gives up who is not through."""
        assert self._accepting is not None, "it was started"
        tasks = [self._accepting, *self._shaking]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self._listening.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connected, _ = await loop.sock_accept(self._listening)
            except OSError:
                await asyncio.sleep(_PAUSE_S)
                continue
            if len(self._shaking) >= self._most:
                oldest = next(iter(self._shaking))
                del self._shaking[oldest]
                oldest.cancel()
            task = asyncio.create_task(self._shake(connected))
            self._shaking[task] = None
            task.add_done_callback(lambda done: self._shaking.pop(done, None))
            await asyncio.sleep(0)  # however many come, others have their turn

    async def _shake(self, connected: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        context = self._tls.material.context
        with contextlib.suppress(OSError):  # it speaks something else, is not let in, takes too long or has left
            await loop.connect_accepted_socket(self._made, connected, ssl=context, ssl_handshake_timeout=_TIME_S)
