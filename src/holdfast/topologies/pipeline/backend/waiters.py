"""Calls that wait for jobs: the store notifies them, and a jittered poll covers lost notifications.

Invariants: a call that waits for an end gets it, or an error if the job does not exist; lookups are batched, however
many calls wait. An outage of the store fails the calls that have just begun to wait; the others keep waiting.
"""

import asyncio
import random
from collections.abc import Collection
from typing import TypeVar

from holdfast.core.tasks import unknown_job
from holdfast.errors import HoldfastError, UnavailableError
from holdfast.ports import JobView, ResultView
from holdfast.topologies.pipeline.backend.role_loops import going_on
from holdfast.topologies.pipeline.backend.store import JobStore

T = TypeVar("T")
Settled = tuple[JobView, ResultView]
Future = asyncio.Future[Settled]

#: The interval of the poll, and the pause before a lost subscription is renewed.
_POLL_S = 2.0
_DEAF_S = 0.5
#: The most jobs of one statement.
_LOOK_MAX = 1_000


class StoreWaiters:
    """All calls in this process that wait for a job."""

    def __init__(self, rows: JobStore) -> None:
        self._rows = rows
        self._watchers: dict[str, list[asyncio.Event]] = {}
        self._versions: dict[str, int] = {}
        self._futures: dict[str, list[Future]] = {}
        #: Jobs with calls that have not been looked up yet, and jobs that have changed.
        self._new: set[str] = set()
        self._changed: set[str] = set()
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def watch(self, job_id: str) -> asyncio.Event:
        """Returns an event that is set at every change, until `unwatch`."""
        self._begin()
        changed = asyncio.Event()
        self._watchers.setdefault(job_id, []).append(changed)
        return changed

    def unwatch(self, job_id: str, changed: asyncio.Event) -> None:
        """Stops setting this event."""
        _remove(self._watchers, job_id, changed)
        if job_id not in self._watchers:
            self._versions.pop(job_id, None)

    async def end_of(self, job_id: str) -> Settled:
        """Waits until the job has ended, and returns it with its result."""
        self._begin()
        future: Future = asyncio.get_running_loop().create_future()
        self._futures.setdefault(job_id, []).append(future)
        self._new.add(job_id)
        self._wake.set()
        try:
            return await future
        finally:
            _remove(self._futures, job_id, future)

    async def close(self) -> None:
        """Fails the calls that still wait, so that their clients call another scheduler."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._fail(list(self._futures), UnavailableError("this scheduler is stopping", reason="STOPPING"))

    def _begin(self) -> None:
        if not self._tasks:
            self._tasks = [asyncio.create_task(going_on(loop)) for loop in (self._listen, self._look_on)]

    async def _listen(self) -> None:
        while True:
            try:
                async for job_ids in self._rows.changes():
                    self._heard(job_ids or {*self._futures, *self._watchers})
            except HoldfastError:  # other calls of the store report it
                pass
            await asyncio.sleep(_DEAF_S * random.uniform(0.5, 1.5))

    def _heard(self, job_ids: Collection[str]) -> None:
        for job_id in job_ids:
            if job_id in self._futures:
                self._changed.add(job_id)
                self._wake.set()
            for changed in self._watchers.get(job_id, ()):
                changed.set()

    async def _look_on(self) -> None:
        loop = asyncio.get_running_loop()
        poll_at_s = loop.time() + _POLL_S
        while True:
            try:
                async with asyncio.timeout_at(poll_at_s):
                    await self._wake.wait()
            except TimeoutError:
                poll_at_s = loop.time() + _POLL_S * random.uniform(0.5, 1.5)
                await self._poll()
            self._wake.clear()
            new, changed = self._new, self._changed
            self._new, self._changed = set(), set()
            await self._look(new | changed, new, new)

    async def _poll(self) -> None:
        """Looks up all jobs, in case that a notification was lost."""
        everybody = set(self._futures)
        await self._look(everybody, set(), everybody)
        try:
            for part in _parts(list(self._watchers)):
                versions = await self._rows.versions(part)
                for job_id in part:
                    version = versions.get(job_id, -1)
                    if self._versions.get(job_id) != version and job_id in self._watchers:
                        self._versions[job_id] = version
                        self._heard([job_id])
        except HoldfastError:  # the next poll comes soon
            return

    async def _look(self, job_ids: set[str], new: set[str], unsure: set[str]) -> None:
        """Completes the calls whose jobs have ended; a job in `unsure` that does not exist fails its calls."""
        for part in _parts([job_id for job_id in job_ids if job_id in self._futures]):
            try:
                ended = await self._rows.ended(part)
                for job_id, end in ended.items():
                    self._hand_over(job_id, end)
                open_ids = [job_id for job_id in part if job_id in unsure and job_id not in ended]
                versions = await self._rows.versions(open_ids) if open_ids else {}
                for job_id in open_ids:
                    if job_id not in versions:
                        self._fail([job_id], unknown_job(job_id).error())
            except HoldfastError as error:
                self._fail([job_id for job_id in part if job_id in new], error)

    def _hand_over(self, job_id: str, end: Settled) -> None:
        for future in self._futures.get(job_id, ()):
            if not future.done():
                future.set_result(end)

    def _fail(self, job_ids: Collection[str], error: HoldfastError) -> None:
        for job_id in job_ids:
            for future in self._futures.get(job_id, ()):
                if not future.done():
                    future.set_exception(error)


def _parts(job_ids: list[str]) -> list[list[str]]:
    return [job_ids[start : start + _LOOK_MAX] for start in range(0, len(job_ids), _LOOK_MAX)]


def _remove(waiting: dict[str, list[T]], job_id: str, one: T) -> None:
    of_job = waiting[job_id]
    of_job.remove(one)
    if not of_job:
        del waiting[job_id]
