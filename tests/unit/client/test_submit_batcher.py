"""Batched submits: replies to each caller, errors, and closing."""

import asyncio
from collections.abc import Sequence

import pytest

from holdfast import limits
from holdfast.client.submit_batcher import SubmitBatcher
from holdfast.core.commands import Submitted
from holdfast.core.model import Template
from holdfast.errors import DeadlineExceededError, InvalidArgumentError, UnavailableError
from holdfast.ports import JobDraft

ID = "00000000-0000-4000-8000-00000000000{}"


class Road:
    """The transport: each request waits until the test completes it."""

    def __init__(self) -> None:
        self.requests: list[tuple[list[str], asyncio.Future[None]]] = []
        self.sent: list[list[str]] = []

    async def send(self, _templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        ids = [draft.id for draft in drafts]
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.requests.append((ids, answer))
        self.sent.append(ids)
        await answer
        return Submitted(ids, 1, {}, frozenset())

    async def next(self) -> tuple[list[str], "asyncio.Future[None]"]:
        while not self.requests:  # noqa: ASYNC110 - takes a turn of the loop or two
            await asyncio.sleep(0)
        return self.requests.pop(0)


async def held_up(road: Road, batcher: SubmitBatcher) -> list["asyncio.Future[None]"]:
    """Starts as many requests as may be in flight, so that further submits wait."""
    for number in (8, 9):
        asyncio.create_task(batcher.submit([Template("x")], [JobDraft(id=ID.format(number))]))  # noqa: RUF006 - it ends with the test
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return [(await road.next())[1] for _ in range(2)]


async def test_waiting_submits_share_a_request_and_get_their_own_replies() -> None:
    """Submits that arrive while others are in flight are sent as one request, and each caller gets its own reply."""
    road = Road()
    batcher = SubmitBatcher(road.send)
    under_way = await held_up(road, batcher)
    waiting = [asyncio.create_task(batcher.submit([Template("x")], [JobDraft(id=ID.format(n))])) for n in range(3)]
    await asyncio.sleep(0)
    under_way[0].set_result(None)
    ids, answer = await road.next()
    assert ids == [ID.format(n) for n in range(3)]
    answer.set_result(None)
    assert [(await task).job_ids for task in waiting] == [[job_id] for job_id in ids]
    await batcher.close()


async def test_refusal_of_one_costs_no_other() -> None:
    """If a batched request is refused, the client sends its submits one by one, so that only the bad one fails."""
    road = Road()
    batcher = SubmitBatcher(road.send)
    under_way = await held_up(road, batcher)
    waiting = [asyncio.create_task(batcher.submit([Template("x")], [JobDraft(id=ID.format(n))])) for n in range(2)]
    await asyncio.sleep(0)
    under_way[0].set_result(None)
    (await road.next())[1].set_exception(InvalidArgumentError("one of them is wrong"))
    (await road.next())[1].set_exception(InvalidArgumentError("this one"))
    (await road.next())[1].set_result(None)
    with pytest.raises(InvalidArgumentError, match="this one"):
        await waiting[0]
    assert (await waiting[1]).job_ids == [ID.format(1)]
    await batcher.close()


async def test_request_without_an_answer_is_not_sent_again_one_by_one() -> None:
    """If a batched request times out, all its callers get the error, and the client does not repeat their submits."""
    road = Road()
    batcher = SubmitBatcher(road.send)
    under_way = await held_up(road, batcher)
    waiting = [asyncio.create_task(batcher.submit([Template("x")], [JobDraft(id=ID.format(n))])) for n in range(3)]
    await asyncio.sleep(0)
    under_way[0].set_result(None)
    (await road.next())[1].set_exception(DeadlineExceededError("no answer in time"))
    for task in waiting:
        with pytest.raises(DeadlineExceededError):
            await task
    assert len(road.sent) == 3
    await batcher.close()


async def test_submission_that_was_given_up_is_not_sent() -> None:
    """A submit that its caller cancels while it waits is not sent."""
    road = Road()
    batcher = SubmitBatcher(road.send)
    under_way = await held_up(road, batcher)
    waiting = [asyncio.create_task(batcher.submit([Template("x")], [JobDraft(id=ID.format(n))])) for n in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    under_way[0].set_result(None)
    ids, answer = await road.next()
    assert ids == [ID.format(1)]
    answer.set_result(None)
    await waiting[1]
    await batcher.close()


async def test_nothing_is_sent_after_the_end() -> None:
    """After a close all pending and later submits fail with UNAVAILABLE, and nothing more is sent."""
    sent: list[int] = []
    begun = asyncio.Event()

    async def send(_templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        sent.append(len(drafts))
        begun.set()
        answer: asyncio.Future[Submitted] = asyncio.get_running_loop().create_future()
        return await answer

    batcher = SubmitBatcher(send)
    batch = [JobDraft()] * limits.BATCH_JOBS_MAX
    submitting = [asyncio.create_task(batcher.submit([Template("x")], batch)) for _ in range(20)]
    await begun.wait()
    count = len(sent)
    await batcher.close()
    for task in submitting:
        with pytest.raises(UnavailableError, match="is stopping"):
            await task
    with pytest.raises(UnavailableError, match="is stopping"):
        await batcher.submit([Template("x")], batch)
    assert len(sent) == count < len(submitting)
