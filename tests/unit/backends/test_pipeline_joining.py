"""Submissions that travel together, when whoever sends them stops."""

import asyncio
from collections.abc import Sequence

import pytest

from holdfast import limits
from holdfast.backends.pipeline.joining import Joiner
from holdfast.backends.ports import JobDraft
from holdfast.core.commands import Submitted
from holdfast.core.model import Template
from holdfast.errors import UnavailableError


async def test_nothing_is_sent_after_the_end() -> None:
    """What is under way, what waits behind it and what comes later are all told, and nothing more is sent."""
    sent: list[int] = []
    begun = asyncio.Event()

    async def send(_templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        sent.append(len(drafts))
        begun.set()
        answer: asyncio.Future[Submitted] = asyncio.get_running_loop().create_future()
        return await answer

    joiner = Joiner(send)
    batch = [JobDraft()] * limits.BATCH_JOBS_MAX
    submitting = [asyncio.create_task(joiner.submit([Template("x")], batch)) for _ in range(20)]
    await begun.wait()
    count = len(sent)
    await joiner.close()
    for task in submitting:
        with pytest.raises(UnavailableError, match="stops"):
            await task
    with pytest.raises(UnavailableError, match="stops"):
        await joiner.submit([Template("x")], batch)
    assert len(sent) == count < len(submitting)
