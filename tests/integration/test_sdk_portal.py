"""The portal: calls, cancellation and close."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from holdfast.errors import FailedPreconditionError, UnavailableError
from holdfast.sdk.portal import Portal
from tests.e2e.wait_until import DEADLINE_S


@pytest.fixture
def portal() -> Iterator[Portal]:
    opened = Portal()
    yield opened
    opened.close()


async def one() -> int:
    return 1


async def broken() -> int:
    raise ValueError("broken")


def test_answers_and_errors_cross_over(portal: Portal) -> None:
    """A caller gets the coroutine's return value or its exception."""
    assert portal.run(one) == 1
    with pytest.raises(ValueError, match="broken"):
        portal.run(broken)


async def test_any_loop_can_await(portal: Portal) -> None:
    """The caller's loop continues while the portal works."""
    assert await portal.arun(one) == 1
    with pytest.raises(ValueError, match="broken"):
        await portal.arun(broken)
    assert await asyncio.gather(*(portal.arun(one) for _ in range(100))) == [1] * 100


async def test_giving_up_here_gives_up_there(portal: Portal) -> None:
    """A canceled caller cancels its coroutine in the portal."""
    begun, ended = threading.Event(), threading.Event()

    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(portal.arun(endless))
    assert await asyncio.to_thread(begun.wait, DEADLINE_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(ended.wait, DEADLINE_S)


def test_closing_the_portal_fails_waiting_callers() -> None:
    """Closing the portal fails a waiting caller and later ones with UnavailableError."""
    portal = Portal()
    begun = threading.Event()
    errors: list[BaseException] = []

    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    def wait() -> None:
        try:
            portal.run(endless)
        except BaseException as error:  # noqa: BLE001 - checked below
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert begun.wait(DEADLINE_S)
    portal.close()
    waiting.join(DEADLINE_S)
    assert [type(error) for error in errors] == [UnavailableError]
    with pytest.raises(UnavailableError):
        portal.run(one)
    portal.close()


def test_waiting_on_its_own_thread_is_refused(portal: Portal) -> None:
    """A call on the portal's own thread, which would wait for itself, is refused."""

    async def misuse() -> int:
        return portal.run(one)

    with pytest.raises(FailedPreconditionError):
        portal.run(misuse)


async def test_streams_cross_over_and_end_early(portal: Portal) -> None:
    """A stream is readable from another loop, and ends when its reader leaves."""
    ended = threading.Event()

    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(1_000_000):
                yield number
        finally:
            ended.set()

    def read() -> list[int]:
        taken = []
        reader = portal.iterate(numbers)
        for number in reader:
            taken.append(number)
            if number == 2:
                break
        reader.close()  # type: ignore[attr-defined]  # a generator
        return taken

    assert await asyncio.to_thread(read) == [0, 1, 2]
    assert ended.is_set()
    assert [number async for number in portal.aiterate(few)] == [0, 1]


async def few() -> AsyncIterator[int]:
    yield 0
    yield 1
