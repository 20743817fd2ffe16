"""Who waits for jobs: told by the store, and looked after by a jittered poll in case that nobody was told.

Invariants: whoever waits for an end gets it, or hears that the job is not there; all that is looked at is looked at
together, however many wait. An outage of the store ends the wait of those who have just come; the others go on.
"""

import asyncio
import random
from collections.abc import Collection
from typing import TypeVar

from holdfast.core.tasks import unknown_job
from holdfast.errors import HoldfastError, UnavailableError
from holdfast.ports import JobView, ResultView
from holdfast.topologies.pipeline.backend.role_loops import going_on
from holdfast.topologies.pipeline.backend.store import Rows

T = TypeVar("T")
Settled = tuple[JobView, ResultView]
Future = asyncio.Future[Settled]

#: How long nothing is looked at while nothing is heard; and how long before a deaf ear listens again.
_POLL_S = 2.0
_DEAF_S = 0.5
#: One statement looks at no more than these.
_LOOK_MAX = 1_000


class StoreWaiters:
    """Everybody in this process who waits for a job."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._watchers: dict[str, list[asyncio.Event]] = {}
        self._versions: dict[str, int] = {}
        self._futures: dict[str, list[Future]] = {}
        #: Those that nobody has looked at since they came, and those that have changed.
        self._new: set[str] = set()
        self._changed: set[str] = set()
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def watch(self, job_id: str) -> asyncio.Event:
        """An event that is set at every change; `unwatch` gives it back."""
        self._begin()
        changed = asyncio.Event()
        self._watchers.setdefault(job_id, []).append(changed)
        return changed

    def unwatch(self, job_id: str, changed: asyncio.Event) -> None:
        """Nobody looks at this event any more."""
        _remove(self._watchers, job_id, changed)
        if job_id not in self._watchers:
            self._versions.pop(job_id, None)

    async def end_of(self, job_id: str) -> Settled:
        """How the job ends, or has ended."""
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
        """Everybody who still waits is told, and asks elsewhere."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._fail(list(self._futures), UnavailableError("this scheduler stops", reason="STOPPING"))

    def _begin(self) -> None:
        if not self._tasks:
            self._tasks = [asyncio.create_task(going_on(loop)) for loop in (self._listen, self._look_on)]

    async def _listen(self) -> None:
        while True:
            try:
                async for job_ids in self._rows.changes():
                    self._heard(job_ids or {*self._futures, *self._watchers})
            except HoldfastError:  # whoever asks the store now hears of it
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
        """As if everything had changed."""
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
        """Hands over what has ended; jobs that are not there end the wait, too, if nobody is sure of them."""
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
