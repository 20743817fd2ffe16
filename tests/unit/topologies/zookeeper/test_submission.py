"""Parts of one submit over ZooKeeper that fail together."""

import asyncio
import gc
from typing import Any

import pytest

from holdfast.errors import UnavailableError
from holdfast.topologies.zookeeper.backend.submission import ended_all


async def fail(number: int) -> None:
    """A part that fails."""
    await asyncio.sleep(0)
    raise UnavailableError(f"part {number}")


async def test_first_failure_is_told_and_no_other_is_forgotten() -> None:
    """The caller gets the first error, and asyncio logs none of the others."""
    unseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unseen.append(context))
    with pytest.raises(UnavailableError, match="part 0"):
        await ended_all([asyncio.ensure_future(fail(number)) for number in range(3)])
    gc.collect()
    await asyncio.sleep(0)
    assert unseen == []


async def test_failures_after_the_caller_has_left_are_not_forgotten_either() -> None:
    """If the caller is canceled, asyncio logs no error of the parts that end later."""
    unseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unseen.append(context))
    parts = [asyncio.ensure_future(fail(number)) for number in range(2)]
    waiting = asyncio.ensure_future(ended_all(parts))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting, *parts])
    del parts, waiting
    gc.collect()
    await asyncio.sleep(0)
    assert unseen == []
