"""The two sides that are measured: what a producer asks of each, in the same words."""

import asyncio
from contextlib import AsyncExitStack
from typing import Protocol, Self

from holdfast.lab.pipeline.place import ARGUMENT

#: Where a side cannot say that a job has ended, it is asked so often.
_LOOK_S = 0.001


class Side(Protocol):
    """One queue, as a program that uses it sees it. Every submit returns once its jobs are durable."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *_: object) -> None: ...

    async def submit(self) -> None:
        """One job."""
        ...

    async def submit_many(self, count: int) -> None:
        """So many jobs in one call."""
        ...

    async def submit_and_wait(self) -> None:
        """One job, until it is known to have ended."""
        ...

    async def done(self) -> int:
        """How many have ended well."""
        ...


class Ours:
    """The SDK, through the gateway."""

    async def __aenter__(self) -> Self:
        from holdfast.lab.pipeline.our_app import app, noop  # noqa: PLC0415 - only one side is loaded

        self._app, self._noop = app, noop
        await self.done()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._app.aclose()

    async def submit(self) -> None:
        """One job."""
        await self._noop.asubmit(ARGUMENT)

    async def submit_many(self, count: int) -> None:
        """So many jobs in one call."""
        await self._noop.asubmit_many([(ARGUMENT,)] * count)

    async def submit_and_wait(self) -> None:
        """One job; the gateway tells of its end."""
        await (await self._noop.asubmit(ARGUMENT)).aresult(timeout_s=30)

    async def done(self) -> int:
        """From the counts."""
        return (await self._app.astats()).states.get("DONE", 0)


class Procrastinate:
    """Its app, with a pool of connections to the database."""

    async def __aenter__(self) -> Self:
        from holdfast.lab.pipeline.procrastinate_app import app, noop  # noqa: PLC0415 - only one side is loaded

        self._app, self._noop = app, noop
        self._closing = AsyncExitStack()
        await self._closing.enter_async_context(app.open_async())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._closing.aclose()

    async def submit(self) -> None:
        """One job."""
        await self._noop.defer_async(argument=ARGUMENT)

    async def submit_many(self, count: int) -> None:
        """So many jobs in one call."""
        await self._noop.batch_defer_async(*[{"argument": ARGUMENT}] * count)

    async def submit_and_wait(self) -> None:
        """One job; its state is asked for every millisecond, because nothing tells of its end."""
        job_id = await self._noop.defer_async(argument=ARGUMENT)
        while (await self._app.job_manager.get_job_status_async(job_id)).value != "succeeded":  # noqa: ASYNC110 - as said
            await asyncio.sleep(_LOOK_S)

    async def done(self) -> int:
        """From the statistics of its jobs."""
        rows = await self._app.connector.execute_query_all_async(
            "SELECT count(*) AS done FROM procrastinate_jobs WHERE status = 'succeeded'"
        )
        return int(rows[0]["done"])


SIDES: dict[str, type[Ours | Procrastinate]] = {"ours": Ours, "procrastinate": Procrastinate}
