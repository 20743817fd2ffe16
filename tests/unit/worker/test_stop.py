"""Stops of a worker whose backend does not answer."""

import asyncio

from holdfast.ports import Introduction
from holdfast.worker.builtin import BUILTIN
from holdfast.worker.config import WorkerConfig
from holdfast.worker.runtime import Worker
from tests.unit.worker.backend import Backend, Session


class SilentBackend(Backend):
    """Never opens a session, and records that the call was cancelled."""

    def __init__(self) -> None:
        super().__init__(1_000)
        self.asked, self.given_up = asyncio.Event(), asyncio.Event()

    async def open(self, introduction: Introduction) -> Session:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up.set()
        return await super().open(introduction)


class DeafSession(Session):
    """A session that does not answer `drain` and never finishes `close`."""

    async def drain(self) -> None:
        self.drained.set()

    async def close(self) -> None:
        await asyncio.Event().wait()


class DeafBackend(Backend):
    """Opens sessions that do not answer."""

    async def open(self, introduction: Introduction) -> Session:
        session = DeafSession(60_000)
        self.opened.put_nowait((introduction, session))
        return session


async def test_stop_before_the_first_session_ends_the_attempt_to_have_one() -> None:
    """A stop of a worker without jobs cancels the opening of its first session."""
    backend = SilentBackend()
    worker = Worker(backend, BUILTIN, WorkerConfig("w", drain_ms=600_000))
    running = asyncio.create_task(worker.run())
    await backend.asked.wait()
    worker.stop()
    await running
    assert backend.given_up.is_set()
    assert not worker.has_left_behind


async def test_third_stop_waits_for_no_answer() -> None:
    """The third stop waits neither for a drain nor for the close of the session, which is left behind."""
    backend = DeafBackend(60_000)
    worker = Worker(backend, BUILTIN, WorkerConfig("w", drain_ms=600_000, kill_grace_ms=600_000))
    running = asyncio.create_task(worker.run())
    _, session = await backend.opened.get()
    await worker.attached.wait()
    worker.stop()
    await session.drained.wait()
    worker.stop()
    worker.stop()
    await running
    assert worker.has_left_behind
