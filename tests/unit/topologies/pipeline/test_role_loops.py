"""Loops of the pipeline's processes."""

import asyncio

import pytest
from structlog.testing import capture_logs

from holdfast.topologies.pipeline.backend import role_loops
from holdfast.topologies.pipeline.backend.role_loops import going_on


async def test_loop_that_breaks_is_told_of_and_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that raises is logged as a bug and restarted until it returns."""
    monkeypatch.setattr(role_loops, "_AGAIN_S", 0.0)
    left = [RuntimeError("first"), KeyError("second")]

    async def loop() -> None:
        if left:
            raise left.pop(0)

    with capture_logs() as lines:
        await going_on(loop)
    assert [line["event"] for line in lines] == ["bug", "bug"]
    assert left == []


async def test_loop_can_be_canceled() -> None:
    """A loop can be canceled."""
    task = asyncio.create_task(going_on(asyncio.Event().wait))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
