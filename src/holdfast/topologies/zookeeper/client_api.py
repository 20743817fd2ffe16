"""A client of an ensemble, with no server of ours in between: every port over one session of its own.

Nothing is opened before the first question, and all who ask meanwhile wait for the same opening. A session that is
lost is followed by another one, so this outlives both.
"""

import asyncio
import importlib.util
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Self

from holdfast import __version__
from holdfast.core.capabilities import ZOOKEEPER, Capabilities
from holdfast.core.commands import CancelReply, Submitted
from holdfast.core.history import Entry
from holdfast.core.lifecycle import State
from holdfast.core.model import Template
from holdfast.errors import FailedPreconditionError
from holdfast.ports import Explanation, Found, JobDraft, JobQuery, JobView, Page, ResultView, WorkApi
from holdfast.topologies.zookeeper.ensemble_url import Ensemble
from holdfast.topologies.zookeeper.unsupported import NoAdmin, NoFeed, NoSchedules

if TYPE_CHECKING:
    from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection
    from holdfast.topologies.zookeeper.backend.job_api import NodeJobs

#: Whoever only asks has little that ends with its session.
_SESSION_MS_MAX = 10_000


async def open_connection(ensemble: Ensemble, *, is_guarded: bool = False) -> "EnsembleConnection":
    """A session for a client or a steward; `UnavailableError` if no server answers."""
    _require_library()
    from holdfast.topologies.zookeeper.backend.connection import connect  # noqa: PLC0415 - it needs kazoo

    session_ms, credentials = min(ensemble.lease_ms, _SESSION_MS_MAX), ensemble.credentials()
    return await connect(
        ensemble.hosts, ensemble.root, session_ms=session_ms, credentials=credentials, is_guarded=is_guarded
    )


def bid_work(ensemble: Ensemble) -> WorkApi:
    """Where a worker gets its work; each of its sessions also stands by as a steward."""
    _require_library()
    from holdfast.topologies.zookeeper.backend.work_api import BidWork, connecting_with  # noqa: PLC0415 - it needs kazoo

    connecting = connecting_with(ensemble.credentials())
    return BidWork(ensemble.hosts, ensemble.root, session_ms=ensemble.lease_ms, connecting=connecting)


def _require_library() -> None:
    """`FailedPreconditionError` says how to install the client library."""
    if importlib.util.find_spec("kazoo") is None:
        message = "ZooKeeper needs the package kazoo: pip install 'holdfast[zookeeper]'"
        raise FailedPreconditionError(message, reason="KAZOO_MISSING")


class BiddingJobs(NoAdmin, NoFeed):
    """What commands and apps ask; what an ensemble does not keep is refused by its name."""

    def __init__(self, ensemble: Ensemble) -> None:
        self._ensemble = ensemble
        self._opening: asyncio.Task[tuple[EnsembleConnection, NodeJobs]] | None = None
        self.schedules = NoSchedules()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def is_open(self) -> bool:
        """Whether somebody has answered yet."""
        opening = self._opening
        return opening is not None and opening.done() and not opening.cancelled() and opening.exception() is None

    async def _jobs(self) -> "NodeJobs":
        if self._opening is None or (self._opening.done() and not self.is_open):
            self._opening = asyncio.create_task(self._open())
        # Whoever gives up waiting does so alone.
        return (await asyncio.shield(self._opening))[1]

    async def _open(self) -> "tuple[EnsembleConnection, NodeJobs]":
        connection = await open_connection(self._ensemble)
        from holdfast.topologies.zookeeper.backend.job_api import NodeJobs  # noqa: PLC0415 - it needs kazoo

        return connection, NodeJobs(connection)

    async def close(self) -> None:
        """Ends the session, or the attempt to have one."""
        opening, self._opening = self._opening, None
        if opening is None:
            return
        opening.cancel()
        await asyncio.wait([opening])
        if not opening.cancelled() and opening.exception() is None:
            await opening.result()[0].close()

    async def capabilities(self) -> Capabilities:
        """Those of every ensemble; there is no server of ours to ask."""
        return ZOOKEEPER.served(__version__, has_totals=False)

    async def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Durable on a majority when it returns."""
        return await (await self._jobs()).submit(templates, drafts)

    async def get(self, job_id: str) -> JobView:
        return await (await self._jobs()).get(job_id)

    async def result(self, job_id: str) -> ResultView:
        return await (await self._jobs()).result(job_id)

    async def cancel(self, job_id: str, reason: str) -> CancelReply:
        return await (await self._jobs()).cancel(job_id, reason)

    async def page(self, states: Collection[State], offset: int, size: int, *, newest_first: bool) -> Page:
        return await (await self._jobs()).page(states, offset, size, newest_first=newest_first)

    async def explain(self, job_id: str) -> Explanation:
        return await (await self._jobs()).explain(job_id)

    async def watch(self, job_id: str) -> AsyncGenerator[JobView, None]:
        """The job now and after each change."""
        async with aclosing((await self._jobs()).watch(job_id)) as views:
            async for view in views:
                yield view

    async def settled(self, job_id: str) -> tuple[JobView, ResultView]:
        return await (await self._jobs()).settled(job_id)

    async def payload(self, job_id: str) -> bytes:
        return await (await self._jobs()).payload(job_id)

    async def find(self, query: JobQuery, cursor: str, size: int) -> Found:
        return await (await self._jobs()).find(query, cursor, size)

    async def retry(self, job_id: str, request_id: str = "") -> str:
        return await (await self._jobs()).retry(job_id, request_id)

    async def history(self, job_id: str) -> list[Entry]:
        return await (await self._jobs()).history(job_id)

    async def forget(self, job_id: str) -> None:
        await (await self._jobs()).forget(job_id)
