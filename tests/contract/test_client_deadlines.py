"""The client's deadlines, as its carrier receives them."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

import pytest

from holdfast.client.remote import RemoteJobs
from holdfast.core.model import QueueMode, Template
from holdfast.errors import FailedPreconditionError
from holdfast.ports import JobDraft, JobQuery
from holdfast.wire.methods import WireMethod

Use = Callable[[RemoteJobs], Awaitable[object]]

Q = TypeVar("Q")
R = TypeVar("R")


class Clockwatcher:
    """A carrier that records the deadline of each call and refuses the call."""

    def __init__(self) -> None:
        self.deadlines_s: list[float | None] = []

    async def call(self, method: WireMethod[Q, R], request: Q, deadline_s: float | None) -> R:
        self.deadlines_s.append(deadline_s)
        raise FailedPreconditionError("seen")

    async def stream(self, method: WireMethod[Q, R], request: Q) -> AsyncGenerator[R, None]:
        yield await self.call(method, request, None)

    async def close(self) -> None:
        """Does nothing."""


async def deadlines_s(use: Use) -> list[float | None]:
    watcher = Clockwatcher()
    with pytest.raises(FailedPreconditionError, match="seen"):
        await use(RemoteJobs(watcher))
    return watcher.deadlines_s


@pytest.mark.parametrize(
    "use",
    [
        lambda remote: remote.submit([Template("echo")], [JobDraft()]),
        lambda remote: remote.cancel("id", ""),
        lambda remote: remote.retry("id"),
        lambda remote: remote.set_queue_mode("q", QueueMode.OPEN, ""),
    ],
    ids=["submit", "cancel", "retry", "mode"],
)
async def test_changing_calls_wait_three_seconds(use: Use) -> None:
    """The client sends submits and cancels with a deadline of 3000 ms."""
    assert await deadlines_s(use) == [3.0]


@pytest.mark.parametrize(
    "use",
    [
        lambda remote: remote.get("id"),
        lambda remote: remote.result("id"),
        lambda remote: remote.explain("id"),
        lambda remote: remote.find(JobQuery(), "", 50),
        lambda remote: remote.page([], 0, 50, newest_first=True),
    ],
    ids=["status", "result", "explain", "find", "page"],
)
async def test_reading_calls_wait_one_second(use: Use) -> None:
    """The client sends status, result and list requests with a deadline of 1000 ms."""
    assert await deadlines_s(use) == [1.0]
