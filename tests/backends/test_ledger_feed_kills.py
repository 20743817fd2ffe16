"""A feed reader while the server is killed repeatedly: it receives exactly the entries of the journal.

The torture has no reader of the feed: its records of clients and workers are the same for every topology, and only
ledgers have a feed. Here its entries are compared one by one with the journal.
"""

import asyncio
import uuid
from contextlib import suppress
from pathlib import Path

from holdfast.client.remote import RemoteJobs
from holdfast.client.wire_transport import tcp_transport
from holdfast.core.history import Entry, entries
from holdfast.core.model import Template
from holdfast.errors import HoldfastError
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.os_disk import OsDisk
from holdfast.ledger import time_travel
from holdfast.ports import JobDraft
from tests.backends.ledger_server import Server, Servers
from tests.e2e.fleet import fleet_in

KILLS = 3


class Listener:
    """Reads the feed from its last position, over reconnects, until an entry of the last job arrives."""

    def __init__(self, target: str, last: str) -> None:
        self._target = target
        self._last = last
        self.heard: list[Entry] = []
        self.position = 0
        self.has_heard = asyncio.Event()

    async def listen(self) -> None:
        while True:
            with suppress(HoldfastError):
                async with RemoteJobs(tcp_transport(self._target)) as remote:
                    if await self._follow(remote):
                        return
            await asyncio.sleep(0)

    async def _follow(self, remote: RemoteJobs) -> bool:
        async for part in remote.feed(self.position):
            self.heard += part.entries
            self.position = part.position
            if part.entries:
                self.has_heard.set()
            if any(entry.job_id == self._last for entry in part.entries):
                return True
        return False


async def submit_until(server: Server, stop: asyncio.Event) -> None:
    """Submits job after job and ignores failed calls."""
    while not stop.is_set():
        with suppress(HoldfastError):
            async with RemoteJobs(tcp_transport(server.target)) as remote:
                while not stop.is_set():
                    await remote.submit([Template("t")], [JobDraft(id=str(uuid.uuid4()))] * 3)
        await asyncio.sleep(0)


async def test_reader_receives_each_journal_entry_once_across_server_kills(tmp_path: Path) -> None:
    """A reader that reconnects after every kill of the server receives each entry of the journal exactly once."""
    with fleet_in(tmp_path) as fleet:
        server = await asyncio.to_thread(Servers(fleet).new, 60_000)
        last, stop = str(uuid.uuid4()), asyncio.Event()
        listener = Listener(server.target, last)
        listening = asyncio.create_task(listener.listen())
        writing = asyncio.create_task(submit_until(server, stop))
        for _ in range(KILLS):
            listener.has_heard.clear()
            await asyncio.wait_for(listener.has_heard.wait(), 60)
            server.kill()
            await asyncio.to_thread(server.start)
        stop.set()
        await asyncio.wait_for(writing, 60)
        async with RemoteJobs(tcp_transport(server.target)) as remote:
            await remote.submit([Template("t")], [JobDraft(id=last)])
        await asyncio.wait_for(listening, 60)
        truth = [
            entry
            for position, event in time_travel.all_events(DirectoryArchive(OsDisk(server.data)))
            for entry in entries(position, event)
            if position <= listener.position
        ]
        assert listener.heard == truth
        assert len(truth) > KILLS
