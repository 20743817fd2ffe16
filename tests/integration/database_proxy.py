"""A proxy in front of the database that can close, drop a response, or go silent."""

import asyncio
import contextlib
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit


class Way:
    """A socket that forwards to the database's socket."""

    def __init__(self, url: str, folder: Path) -> None:
        there = parse_qs(urlsplit(url).query)["host"][0]
        self.url = url.replace(quote(there, safe=""), quote(str(folder), safe=""))
        self._there, self._here = f"{there}/.s.PGSQL.5432", folder / ".s.PGSQL.5432"
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._losing = b""
        #: The number of dropped responses.
        self.lost = 0
        self.is_silent = False

    async def open(self) -> None:
        """Starts to accept and forward connections."""
        self._server = await asyncio.start_unix_server(self._pass, self._here)

    async def close(self) -> None:
        """Stops accepting connections and aborts the open ones."""
        if self._server is not None:
            self._server.close()
        self._here.unlink(missing_ok=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def lose_answer_to(self, words: bytes) -> None:
        """Breaks the connection on which these bytes pass next, right before the response would arrive."""
        self._losing = words

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        there_reader, there_writer = await asyncio.open_unix_connection(self._there)
        self._writers |= {writer, there_writer}
        is_last = asyncio.Event()
        with contextlib.suppress(OSError):
            await asyncio.gather(
                self._copy(reader, there_writer, is_last, is_question=True),
                self._copy(there_reader, writer, is_last, is_question=False),
            )
        for one in (writer, there_writer):
            one.transport.abort()
        self._writers -= {writer, there_writer}

    async def _copy(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, is_last: asyncio.Event, *, is_question: bool
    ) -> None:
        while data := await source.read(1 << 16):
            if self.is_silent:
                continue
            if is_question and self._losing and self._losing in data:
                self._losing = b""
                is_last.set()
            elif is_last.is_set() and not is_question:
                self.lost += 1
                raise ConnectionAbortedError
            target.write(data)
            await target.drain()
        raise ConnectionAbortedError
