"""TLS handshakes of new connections: a limit on their number, and on their duration.

Invariant: a client that does not finish its handshake in time holds no descriptor; above the limit, a new connection
evicts the one whose handshake has taken longest.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable

from holdfast import limits
from holdfast.server.auth.certificates import Certificates

_TIME_S = limits.HTTP_HEAD_MS_MAX / 1_000
#: Pause before the next accept if the system has no descriptor left.
_PAUSE_S = 0.1


class Handshakes:
    """Accepts connections from a listening socket. `start`, then `stop`."""

    def __init__(
        self, listening: socket.socket, tls: Certificates, made: Callable[[], asyncio.Protocol], *, most: int
    ) -> None:
        self._listening = listening
        self._most = most
        self._tls = tls
        self._made = made
        #: Handshakes in progress, oldest first.
        self._shaking: dict[asyncio.Task[None], None] = {}
        self._accepting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts accepting connections."""
        self._accepting = asyncio.create_task(self._accept())

    async def stop(self) -> None:
        """Stops accepting, and cancels handshakes in progress."""
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
            await asyncio.sleep(0)  # lets other tasks run, however many connections arrive

    async def _shake(self, connected: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        context = self._tls.material.context
        with contextlib.suppress(OSError):  # not TLS, no valid certificate, timeout, or disconnected
            await loop.connect_accepted_socket(self._made, connected, ssl=context, ssl_handshake_timeout=_TIME_S)
