"""A pooler in transaction mode, as small as a test needs it: every transaction may get another session."""

import asyncio
import contextlib
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, quote, urlsplit

#: The two ends of a session with the server, and the server's answer to the start.
Session = tuple[asyncio.StreamWriter, asyncio.StreamReader, bytes]

_KEY_DATA, _READY = b"K", b"Z"


class FakePooler:
    """Forwards each client to the server, and to a second session of its own after the first transaction."""

    def __init__(self, url: str, folder: Path, *, rewrites_pid: bool) -> None:
        """`rewrites_pid`: clients get a made-up process id, as from PgBouncer."""
        there = parse_qs(urlsplit(url).query)["host"][0]
        self.url = url.replace(quote(there, safe=""), quote(str(folder), safe=""))
        self._there, self._here = f"{there}/.s.PGSQL.5432", folder / ".s.PGSQL.5432"
        self._rewrites_pid = rewrites_pid
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._serve, self._here)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        sessions: list[Session] = []
        try:
            startup = await reader.readexactly(int.from_bytes(size := await reader.readexactly(4), "big") - 4)
            sessions.append(await self._session(size + startup))
            sessions.append(await self._session(size + startup))
            await self._pool(sessions, reader, writer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, OSError):
            pass
        finally:
            for one in (writer, *(there for there, _, _ in sessions)):
                one.transport.abort()
                with contextlib.suppress(OSError):
                    await one.wait_closed()

    async def _pool(self, sessions: list[Session], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = sessions[0][2]
        writer.write(_with_other_pid(answer) if self._rewrites_pid else answer)
        for there, back, _ in (sessions[0], *[sessions[1]] * 9):
            there.write(await _until_sync(reader))
            writer.write(b"".join(await _until_ready(back)))

    async def _session(self, startup: bytes) -> Session:
        back, there = await asyncio.open_unix_connection(self._there)
        there.write(startup)
        return there, back, b"".join(await _until_ready(back))


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    return head + await reader.readexactly(int.from_bytes(head[1:], "big") - 4)


async def _until_sync(reader: asyncio.StreamReader) -> bytes:
    """Reads the messages of one transaction: up to a Sync or a simple query."""
    found = [await _message(reader)]
    while found[-1][:1] not in {b"S", b"Q"}:
        found.append(await _message(reader))
    return b"".join(found)


async def _until_ready(reader: asyncio.StreamReader) -> list[bytes]:
    found = [await _message(reader)]
    while found[-1][:1] != _READY:
        found.append(await _message(reader))
    return found


def _with_other_pid(answer: bytes) -> bytes:
    at = answer.index(_KEY_DATA + (12).to_bytes(4, "big")) + 5
    return answer[:at] + (1).to_bytes(4, "big") + answer[at + 4 :]
