"""A way to the database that can be cut, lose an answer, or fall silent."""

import asyncio
import contextlib
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit


class Way:
    """A socket that leads to a database's own."""

    def __init__(self, url: str, folder: Path) -> None:
        there = parse_qs(urlsplit(url).query)["host"][0]
        self.url = url.replace(quote(there, safe=""), quote(str(folder), safe=""))
        self._there, self._here = f"{there}/.s.PGSQL.5432", folder / ".s.PGSQL.5432"
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._losing = b""
        #: How many answers were lost.
        self.lost = 0
        self.is_silent = False

    async def open(self) -> None:
        """From now on it leads there."""
        self._server = await asyncio.start_unix_server(self._pass, self._here)

    async def close(self) -> None:
        """From now on nobody gets through, and whoever was on the way is cut off."""
        if self._server is not None:
            self._server.close()
        self._here.unlink(missing_ok=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def lose_answer_to(self, words: bytes) -> None:
        """The next time that these words pass, the connection breaks right before their answer would."""
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
