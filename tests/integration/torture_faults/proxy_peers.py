"""Both ends of a proxy: a server that records its received bytes, and clients."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from holdfast_lab.torture.faults.proxy import TcpProxy

#: Only a failing test waits this long.
DEADLINE_S = 30.0
_LOOK_S = 0.005
#: The time for which the chatting client waits for a reply before its next message.
_CHAT_S = 0.02


class Heard:
    """One connection as the server sees it."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.said = bytearray()
        #: Its end: closed or reset; empty while it is open.
        self.end = ""
        self.writer = writer


class Server:
    """Accepts connections and records their bytes; replies only if a test writes, or if it answers everything."""

    def __init__(self) -> None:
        self.connections: list[Heard] = []
        self.port = 0
        self.is_answering = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard = Heard(writer)
        self.connections.append(heard)
        try:
            while chunk := await reader.read(65_536):
                heard.said += chunk
                if self.is_answering:
                    writer.write(chunk)
            heard.end = "closed"
        except ConnectionResetError:
            heard.end = "reset"

    async def heard(self, said: bytes, index: int = 0) -> Heard:
        """Waits until the connection of that index has received exactly these bytes."""
        await until(lambda: len(self.connections) > index and bytes(self.connections[index].said) == said)
        return self.connections[index]


class Client:
    """One connection through the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def say(self, words: bytes) -> None:
        self.writer.write(words)

    async def hear(self, count: int) -> bytes:
        return await asyncio.wait_for(self.reader.readexactly(count), DEADLINE_S)

    async def end(self) -> str:
        """Waits for the end: closed or reset."""
        try:
            rest = await asyncio.wait_for(self.reader.read(), DEADLINE_S)
        except ConnectionResetError:
            return "reset"
        return "closed" if not rest else f"said {rest!r}"


async def until(is_so: Callable[[], object]) -> None:
    """Waits for the condition, and fails at the deadline."""
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(_LOOK_S)


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    """A server whose connections are closed at the end."""
    made = Server()
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = listening.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        listening.close()
        for heard in made.connections:
            heard.writer.close()
            with suppress(OSError):
                await heard.writer.wait_closed()
        await listening.wait_closed()


@asynccontextmanager
async def proxied(server_port: int) -> AsyncIterator[TcpProxy]:
    """A proxy in front of the server."""
    proxy = await TcpProxy.open("127.0.0.1", server_port)
    try:
        yield proxy
    finally:
        await proxy.close()


@asynccontextmanager
async def chatted_on(server: Server, proxy: TcpProxy) -> AsyncIterator[None]:
    """Keeps a client talking through the proxy that reconnects after every cut."""
    server.is_answering = True
    chatting = asyncio.create_task(_chat(proxy))
    try:
        yield
    finally:
        chatting.cancel()
        await asyncio.gather(chatting, return_exceptions=True)


async def _chat(proxy: TcpProxy) -> None:
    while True:
        async with connected(proxy) as client:
            with suppress(OSError, EOFError):
                while True:
                    client.say(b"word")
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_CHAT_S):
                            await client.reader.readexactly(4)


@asynccontextmanager
async def connected(proxy: TcpProxy) -> AsyncIterator[Client]:
    """A client of the proxy."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
