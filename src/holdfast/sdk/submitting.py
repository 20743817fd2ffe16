"""Jobs on their way in: one, or many in batches of which several are on their way at a time."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast import limits
from holdfast.backends.ports import JobDraft
from holdfast.core.commands import Submitted
from holdfast.core.model import Template
from holdfast.errors import HoldfastError
from holdfast.sdk.codec import Codec
from holdfast.sdk.errors import SubmitManyError
from holdfast.sdk.job import Job
from holdfast.sdk.options import Plan
from holdfast.sdk.pairs import awaiting, waiting

if TYPE_CHECKING:
    from holdfast.sdk.connection import Connection
    from holdfast.sdk.portal import Portal

#: More batches than this on their way at a time gain nothing: the coordinator joins their syncs.
_IN_FLIGHT = 4


class Item(NamedTuple):
    """One job to be: its kind, its payload, and how its result is to be read."""

    plan: Plan
    payload: bytes
    codec: Callable[[], Codec] | None = None


class Submitter:
    """Sends jobs over one connection. The ids are made here, so that a submission can be repeated after a loss."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection

    def one(self, item: Item) -> Job[Any]:
        """Durable when it returns. Asked on this very thread if that is possible; the id makes a second try safe."""
        templates, drafts = [item.plan.template], [item.plan.draft(self._connection.mint(), item.payload)]
        near = self._connection.near()
        if near is not None:
            try:
                return self._accepted(near.submit(templates, drafts), 0, item)
            except HoldfastError as error:
                if not error.retryable:
                    raise
        return self._portal().run(lambda: self._send_one(item, templates, drafts))

    async def aone(self, item: Item) -> Job[Any]:
        """The same, to be awaited."""
        templates, drafts = [item.plan.template], [item.plan.draft(self._connection.mint(), item.payload)]
        return await self._portal().arun(lambda: self._send_one(item, templates, drafts))

    async def _send_one(self, item: Item, templates: list[Template], drafts: list[JobDraft]) -> Job[Any]:
        submitted = await self._connection.call(lambda ports: ports.jobs.submit(templates, drafts))
        return self._accepted(submitted, 0, item)

    async def _many(self, items: list[Item]) -> list[Job[Any]]:
        """All of them, or SubmitManyError with those that were accepted."""
        import asyncio

        limit = asyncio.Semaphore(_IN_FLIGHT)
        jobs: list[Job[Any] | None] = [None] * len(items)
        errors: dict[int, HoldfastError] = {}

        async def send(start: int, batch: list[Item]) -> None:
            async with limit:
                outcomes = await self._batch(batch)
            for index, outcome in enumerate(outcomes, start):
                if isinstance(outcome, Job):
                    jobs[index] = outcome
                else:
                    errors[index] = outcome

        await asyncio.gather(*(send(start, batch) for start, batch in _batches(items)))
        if errors:
            raise SubmitManyError(jobs, errors)
        return [job for job in jobs if job is not None]

    async def _batch(self, items: Sequence[Item]) -> list[Job[Any] | HoldfastError]:
        templates: dict[Template, int] = {}
        drafts: list[JobDraft] = []
        for plan, payload, _ in items:
            number = templates.setdefault(plan.template, len(templates))
            drafts.append(plan.draft(self._connection.mint(), payload, number))
        try:
            submitted = await self._connection.call(lambda ports: ports.jobs.submit(list(templates), drafts))
        except HoldfastError as error:
            return [error] * len(items)
        return [self._outcome(submitted, index, item) for index, item in enumerate(items)]

    def _outcome(self, submitted: Submitted, index: int, item: Item) -> Job[Any] | HoldfastError:
        try:
            return self._accepted(submitted, index, item)
        except HoldfastError as error:
            return error

    def _accepted(self, submitted: Submitted, index: int, item: Item) -> Job[Any]:
        refusal = submitted.refusals.get(index)
        if refusal is not None:
            raise refusal.error()
        is_existing = index in submitted.existing
        return Job(self._connection, submitted.job_ids[index], item.codec, is_existing=is_existing)

    many, amany = waiting(_many), awaiting(_many)

    def _portal(self) -> "Portal":
        return self._connection.portal()


def _batches(items: Sequence[Item]) -> Iterator[tuple[int, list[Item]]]:
    """Parts that each fit into one submission, with the number of their first item."""
    start, size = 0, 0
    for index, item in enumerate(items):
        size += len(item.payload)
        if index > start and (index - start == limits.BATCH_JOBS_MAX or size > limits.BATCH_BYTES_MAX):
            yield start, list(items[start:index])
            start, size = index, len(item.payload)
    if items:
        yield start, list(items[start:])
