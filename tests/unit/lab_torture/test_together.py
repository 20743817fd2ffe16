"""Concurrent coroutines."""

import asyncio

import pytest

from holdfast_lab.torture.task_group import together


async def test_failure_of_one_ends_the_others_first() -> None:
    """When the failure is raised, all other coroutines have ended."""
    ended = asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def fail() -> None:
        await asyncio.sleep(0)
        raise LookupError

    with pytest.raises(LookupError):
        await together([wait(), fail()])
    assert ended.is_set()
