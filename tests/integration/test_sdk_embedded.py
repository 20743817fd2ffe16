"""An app inside another program: a remote server, a failing disk, snapshots and logging."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from holdfast import Holdfast, State, UnavailableError
from holdfast.core.ledger import Ledger
from holdfast.core.model import Now
from holdfast.ledger.coordinator import BROKEN, CommandLane
from holdfast.testing.clock import memory_of
from tests.e2e.wait_until import DEADLINE_S, eventually
from tests.integration.conftest import Start


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Holdfast]:
    with Holdfast(tmp_path / "jobs") as opened:
        yield opened


async def test_server_is_used_like_a_directory(start: Start) -> None:
    """The same app works over gRPC: submit, run, watch, search, administration."""
    server = await start()
    async with Holdfast(f"holdfast://{server.address}") as app:

        @app.job
        def add(a: int, b: int) -> int:
            return a + b

        worker = await asyncio.to_thread(app.worker(slots=2).start)
        try:
            jobs = await add.asubmit_many([(n, 1) for n in range(1_500)])
            assert await asyncio.gather(*jobs) == list(range(1, 1_501))
            assert [view.state async for view in jobs[0].aevents()] == [State.DONE]
            assert [entry.what for entry in await jobs[0].ahistory()] == ["submitted", "granted", "finished"]
            assert len([job async for job in app.afind(state=State.DONE)]) == 1_500
        finally:
            await asyncio.to_thread(worker.stop)


async def test_call_to_an_address_without_a_server_is_unavailable() -> None:
    """A call to an address without a server is UNAVAILABLE after the client's attempts."""
    async with Holdfast("holdfast://127.0.0.1:1") as app:
        with pytest.raises(UnavailableError, match="holdfast up"):
            await app.astats()


def test_mistake_in_the_program_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A bug in the coordinator is answered as broken, and the logger `holdfast` has the traceback."""
    with Holdfast("memory://") as app:
        assert app.connection.portal().run(lambda: _broken_answer(app)) == BROKEN
    assert "a mistake" in caplog.text
    assert "Traceback" in caplog.text


async def _broken_answer(app: Holdfast) -> object:
    def broken(_ledger: Ledger, _now: Now) -> object:
        raise RuntimeError("a mistake")

    answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    memory_of(app.connection).core.coordinator.read(CommandLane.SUBMIT, broken, answer.set_result)
    return await answer


def test_failed_journal_is_opened_anew(app: Holdfast, tmp_path: Path) -> None:
    """After a failure of the journal, the process opens it again and repeats the calls."""
    first = app.submit("echo", [1])
    for segment in (tmp_path / "jobs").glob("*.seg"):
        copy = tmp_path / segment.name
        copy.write_bytes(segment.read_bytes())
        segment.unlink()
        copy.rename(segment)
    second = app.submit("echo", [2])
    assert first.status() is State.QUEUED
    assert second.status() is State.QUEUED
    assert app.stats().epoch == 2


def test_snapshots_are_made_beside_an_app(tmp_path: Path) -> None:
    """An app's directory gets snapshots from a process of their own, as with a server."""
    settings = {"segment_bytes": 65_536, "snapshot_bytes": 65_536}
    with Holdfast(tmp_path / "jobs", settings=settings) as app:

        def is_made() -> bool:
            app.submit("echo", b"x" * 20_000)
            return any((tmp_path / "jobs").glob("*.snap*"))

        eventually(is_made, what="a snapshot")
        count = len(list(app.find()))
    with Holdfast(tmp_path / "jobs", settings=settings) as app:
        assert len(list(app.find())) == count


def test_embedding_program_keeps_its_own_logging(app: Holdfast, capfd: pytest.CaptureFixture[str]) -> None:
    """An app neither configures logging nor prints anything in the embedding program."""
    is_configured = structlog.is_configured()
    with app.worker():
        assert app.submit("echo", [1]).result(timeout_s=DEADLINE_S) == [1]
    app.close()
    assert structlog.is_configured() == is_configured
    assert capfd.readouterr() == ("", "")


def test_working_directory_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path keeps its meaning when the working directory changes."""
    monkeypatch.chdir(tmp_path)
    with Holdfast("jobs") as app:
        job = app.submit("echo")
        (tmp_path / "elsewhere").mkdir()
        os.chdir(tmp_path / "elsewhere")
        with Holdfast(tmp_path / "jobs") as other:
            assert other.job_handle(job.id).status() is State.QUEUED
