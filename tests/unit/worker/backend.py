"""A fake backend: sends the directives of a test, and records the messages of the worker."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

from holdfast.core.capabilities import Capabilities
from holdfast.core.commands import ReportRow
from holdfast.core.model import Note
from holdfast.errors import UnavailableError
from holdfast.ports import Directive, Introduction
from holdfast.worker.config import WorkerConfig
from holdfast.worker.handlers import Handler
from holdfast.worker.runtime import Worker

LEASE_MS = 30_000


class Session:
    """A session of the fake backend."""

    def __init__(
        self, heartbeat_ms: int, capabilities: Capabilities | None = None, *, are_leases_renewed: bool = False
    ) -> None:
        self.directives: asyncio.Queue[Directive | UnavailableError] = asyncio.Queue()
        self.rows: asyncio.Queue[ReportRow] = asyncio.Queue()
        self.beats: asyncio.Queue[None] = asyncio.Queue()
        self.wants: asyncio.Queue[int] = asyncio.Queue()
        self.released: asyncio.Queue[list[int]] = asyncio.Queue()
        self.said: asyncio.Queue[Note | ReportRow] = asyncio.Queue()
        self.drained = asyncio.Event()
        self.tell(
            Directive(
                lease_ms=LEASE_MS,
                heartbeat_ms=heartbeat_ms,
                capabilities=capabilities,
                are_leases_renewed=are_leases_renewed,
            )
        )

    def tell(self, directive: Directive | UnavailableError) -> None:
        self.directives.put_nowait(directive)

    async def next(self) -> Directive:
        directive = await self.directives.get()
        if isinstance(directive, UnavailableError):
            raise directive
        return directive

    async def want(self, count: int) -> None:
        self.wants.put_nowait(count)

    async def report(self, report_id: int, rows: Sequence[ReportRow]) -> None:
        for row in rows:
            self.rows.put_nowait(row)
            self.said.put_nowait(row)
        self.tell(Directive(reported=report_id))

    async def note(self, notes: Sequence[Note]) -> None:
        for note in notes:
            self.said.put_nowait(note)

    async def extend(self) -> None:
        self.beats.put_nowait(None)

    async def release(self, tokens: Collection[int]) -> None:
        self.released.put_nowait(list(tokens))

    async def drain(self) -> None:
        self.drained.set()
        self.tell(Directive(is_drained=True))

    async def close(self) -> None: ...


class Backend:
    """Opens sessions and records their introductions."""

    def __init__(
        self, heartbeat_ms: int, capabilities: Capabilities | None = None, *, are_leases_renewed: bool = False
    ) -> None:
        self._heartbeat_ms = heartbeat_ms
        self._capabilities = capabilities
        self._are_leases_renewed = are_leases_renewed
        self.opened: asyncio.Queue[tuple[Introduction, Session]] = asyncio.Queue()

    async def open(self, introduction: Introduction) -> Session:
        session = Session(self._heartbeat_ms, self._capabilities, are_leases_renewed=self._are_leases_renewed)
        self.opened.put_nowait((introduction, session))
        return session


@asynccontextmanager
async def working(
    handlers: Mapping[str, Handler], *, heartbeat_ms: int = 1_000, slots: int = 8, are_leases_renewed: bool = False
) -> AsyncIterator[tuple[Worker, Backend]]:
    """Runs a worker during the block, and stops it afterwards without waiting for its jobs."""
    backend = Backend(heartbeat_ms, are_leases_renewed=are_leases_renewed)
    worker = Worker(backend, handlers, WorkerConfig("w", slots, kill_grace_ms=200))
    running = asyncio.create_task(worker.run())
    yield worker, backend
    worker.stop()
    worker.stop()
    await running
