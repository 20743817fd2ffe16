"""A stop of a worker whose backend does not answer."""

import asyncio

from holdfast.ports import Introduction
from holdfast.worker.builtin import BUILTIN
from holdfast.worker.config import WorkerConfig
from holdfast.worker.runtime import Worker
from tests.unit.worker.backend import Backend, Session


class SilentBackend(Backend):
    """Never opens a session, and says whether it was told to give up."""

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
    """Answers no drain, and cannot be closed."""

    async def drain(self) -> None:
        self.drained.set()

    async def close(self) -> None:
        await asyncio.Event().wait()


class DeafBackend(Backend):
    """Opens sessions that are deaf."""

    async def open(self, introduction: Introduction) -> Session:
        session = DeafSession(60_000)
        self.opened.put_nowait((introduction, session))
        return session


async def test_stop_before_the_first_session_ends_the_attempt_to_have_one() -> None:
    """Without jobs there is nothing that a session would be needed for."""
    backend = SilentBackend()
    worker = Worker(backend, BUILTIN, WorkerConfig("w", drain_ms=600_000))
    running = asyncio.create_task(worker.run())
    await backend.asked.wait()
    worker.stop()
    await running
    assert backend.given_up.is_set()
    assert not worker.has_left_behind


async def test_third_stop_waits_for_no_answer() -> None:
    """Neither for that to a drain, nor for the end of the session; the loop cannot be closed in order then."""
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
