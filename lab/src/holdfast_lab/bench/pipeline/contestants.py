"""The two sides of the comparison, behind one interface for producers."""

import asyncio
from contextlib import AsyncExitStack
from typing import Protocol, Self

from holdfast_lab.bench.pipeline.environment import ARGUMENT

#: Interval of polling where a side does not report the end of a job.
_LOOK_S = 0.001


class Contestant(Protocol):
    """One queue, as a producer uses it. Every submit returns once its jobs are durable."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *_: object) -> None: ...

    async def submit(self) -> None:
        """Submit one job."""
        ...

    async def submit_many(self, count: int) -> None:
        """Submit this many jobs in one call."""
        ...

    async def submit_and_wait(self) -> None:
        """Submit one job and wait until its end is known."""
        ...

    async def done(self) -> int:
        """The number of jobs that are done."""
        ...


class HoldfastContestant:
    """Holdfast: the SDK, through the gateway."""

    async def __aenter__(self) -> Self:
        from holdfast_lab.bench.noop_app import anoop, app  # noqa: PLC0415 - only one side is loaded

        self._app, self._noop = app, anoop
        await self.done()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._app.aclose()

    async def submit(self) -> None:
        """Submit one job."""
        await self._noop.asubmit(ARGUMENT)

    async def submit_many(self, count: int) -> None:
        """Submit this many jobs in one call."""
        await self._noop.asubmit_many([(ARGUMENT,)] * count)

    async def submit_and_wait(self) -> None:
        """Submit one job; the gateway reports its end."""
        await (await self._noop.asubmit(ARGUMENT)).aresult(timeout_s=30)

    async def done(self) -> int:
        """The count of the server."""
        return (await self._app.astats()).states.get("DONE", 0)


class Procrastinate:
    """Procrastinate: its app, with a pool of connections to the database."""

    async def __aenter__(self) -> Self:
        from holdfast_lab.bench.pipeline.procrastinate_app import app, noop  # noqa: PLC0415 - only one side is loaded

        self._app, self._noop = app, noop
        self._closing = AsyncExitStack()
        await self._closing.enter_async_context(app.open_async())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._closing.aclose()

    async def submit(self) -> None:
        """Submit one job."""
        await self._noop.defer_async(argument=ARGUMENT)

    async def submit_many(self, count: int) -> None:
        """Submit this many jobs in one call."""
        await self._noop.batch_defer_async(*[{"argument": ARGUMENT}] * count)

    async def submit_and_wait(self) -> None:
        """Submit one job and poll its state every millisecond: Procrastinate does not report ends."""
        job_id = await self._noop.defer_async(argument=ARGUMENT)
        while (await self._app.job_manager.get_job_status_async(job_id)).value != "succeeded":  # noqa: ASYNC110 - see above
            await asyncio.sleep(_LOOK_S)

    async def done(self) -> int:
        """The count of the table of jobs."""
        rows = await self._app.connector.execute_query_all_async(
            "SELECT count(*) AS done FROM procrastinate_jobs WHERE status = 'succeeded'"
        )
        return int(rows[0]["done"])


SIDES: dict[str, type[HoldfastContestant | Procrastinate]] = {
    "ours": HoldfastContestant,
    "procrastinate": Procrastinate,
}
