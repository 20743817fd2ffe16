"""A worker at a backend that lacks capabilities which its app uses."""

import asyncio

import pytest

from holdfast.core.capabilities import LEDGER, Capabilities
from holdfast.errors import MAPPED, ExitCode, UnavailableError, UnimplementedError
from holdfast.topologies.pipeline import PIPELINE
from holdfast.topologies.zookeeper import ZOOKEEPER
from holdfast.worker.builtin import BUILTIN
from holdfast.worker.config import WorkerConfig
from holdfast.worker.handlers import Handler, Mode
from holdfast.worker.runtime import Worker
from tests.unit.worker.backend import Backend

APP = {"resize": Handler(lambda _: b"", Mode.THREAD)}


async def sessions(backend: Backend, worker: Worker, count: int) -> None:
    """Runs the worker over `count` sessions, of which all but the last are lost, and stops it."""
    running = asyncio.create_task(worker.run())
    for number in range(count):
        _, session = await backend.opened.get()
        await session.wants.get()
        if number < count - 1:
            session.tell(UnavailableError("lost"))
    worker.stop()
    await running


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The log messages about missing capabilities."""
    return [record.getMessage() for record in caplog.records if "capability_missing" in record.getMessage()]


async def test_worker_says_once_that_notes_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """One warning names progress(), log() and the backend, however often the worker reconnects."""
    backend = Backend(1_000, PIPELINE)
    await sessions(backend, Worker(backend, {**BUILTIN, **APP}, WorkerConfig("w")), 3)
    (line,) = warnings_of(caplog)
    assert "pipeline" in line
    assert "progress() and log()" in line


@pytest.mark.parametrize(("told", "handlers"), [(PIPELINE, BUILTIN), (LEDGER, APP), (None, APP)])
async def test_worker_is_quiet_where_nothing_is_dropped(
    told: Capabilities | None, handlers: dict[str, Handler], caplog: pytest.LogCaptureFixture
) -> None:
    """A worker without an app, or at a backend that keeps notes, does not warn."""
    backend = Backend(1_000, told)
    await sessions(backend, Worker(backend, handlers, WorkerConfig("w")), 1)
    assert warnings_of(caplog) == []


async def test_worker_refuses_a_backend_without_its_schedules() -> None:
    """The worker ends with exit code 4 before it requests a lease, and names the schedules and the backend."""
    backend = Backend(1_000, ZOOKEEPER)
    worker = Worker(backend, APP, WorkerConfig("w", schedules=("nightly", "hourly")))
    with pytest.raises(UnimplementedError, match=r"2 schedules \(hourly, nightly\), and the zookeeper") as caught:
        await worker.run()
    assert MAPPED[caught.value.code].exit_code == ExitCode.REFUSED
    _, session = await backend.opened.get()
    assert session.wants.empty()


async def test_worker_with_schedules_works_where_there_are_schedules() -> None:
    """A worker with schedules uses a backend that has schedules and lacks other capabilities."""
    backend = Backend(1_000, PIPELINE)
    await sessions(backend, Worker(backend, APP, WorkerConfig("w", schedules=("nightly",))), 1)
