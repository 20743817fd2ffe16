"""Relays connections from a Unix socket to a port: `python relay.py SOCKET PORT`, inside the engine's network.

The engine has a network namespace of its own, so that it cannot interfere with the machine's. A socket file is visible
in both.
"""

import asyncio
import contextlib
import sys

_CHUNK_BYTES = 65_536


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await source.read(_CHUNK_BYTES):
            sink.write(chunk)
            await sink.drain()
    sink.close()


async def _serve(path: str, port: int) -> None:
    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))

    server = await asyncio.start_unix_server(carry, path)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2])))
