"""The end of an app at a bad moment: while it opens, and before a worker begins."""

import asyncio
from pathlib import Path

import pytest

from holdfast import Holdfast, UnavailableError
from holdfast.errors import AbortedError


def test_app_closed_while_it_opens_gives_its_directory_back(tmp_path: Path) -> None:
    """Whoever closes an app that is still recovering its directory leaves it to the next one."""
    with Holdfast(tmp_path / "jobs") as app:
        app.job(len).submit_many([("x",)] * 3_000)  # recovering takes longer than closing
    for _ in range(3):
        asyncio.run(_ask_and_close(Holdfast(tmp_path / "jobs")))
        with Holdfast(tmp_path / "jobs") as other:
            assert other.stats().workers == 0


async def _ask_and_close(app: Holdfast) -> None:
    asking = asyncio.create_task(app.astats())
    await asyncio.sleep(0)  # the question is on its way to the portal, and opens the directory there
    await app.aclose()
    with pytest.raises(UnavailableError):
        await asking


def test_worker_of_a_closed_app_ends(tmp_path: Path) -> None:
    """A worker does not wait for an app that was closed: it says so."""
    app = Holdfast(tmp_path / "jobs")
    app.close()
    with pytest.raises(AbortedError, match="closed"):
        app.worker().start()
    with pytest.raises(AbortedError, match="closed"):
        app.worker().run()
