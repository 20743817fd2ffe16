"""Many subscribers of a server's event stream, in a process of their own: `http_listeners ADDRESS COUNT`.

Prints a line once all of them receive events, and on TERM how many bytes they have received.
"""

import asyncio
import signal
import sys
from typing import cast

import uvloop


class _Listener(asyncio.Protocol):
    """One connection; received bytes are counted and dropped."""

    def __init__(self, address: str) -> None:
        self._request = f"GET /api/v1/events HTTP/1.1\r\nHost: {address}\r\n\r\n".encode()
        self.heard = asyncio.Event()
        self.size = 0
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        assert self.size or data.startswith(b"HTTP/1.1 200 "), data
        self.size += len(data)
        self.heard.set()

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self.is_lost = True


async def listen(address: str, count: int) -> None:
    """Receive events until TERM."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    listeners = [(await loop.create_connection(lambda: _Listener(address), host, int(port)))[1] for _ in range(count)]
    for listener in listeners:
        await listener.heard.wait()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    print("listening", flush=True)
    await stopped.wait()
    size, lost = sum(listener.size for listener in listeners), sum(listener.is_lost for listener in listeners)
    print(f"{count} listeners received {size:,} bytes; {lost} were disconnected", flush=True)


if __name__ == "__main__":
    sys.exit(uvloop.run(listen(sys.argv[1], int(sys.argv[2]))))
