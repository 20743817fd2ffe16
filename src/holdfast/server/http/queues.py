"""`/api/v1/queues` and `/api/v1/workers`: what operators look at and change."""

from typing import Literal

import msgspec

from holdfast.core.capabilities import Capability
from holdfast.core.model import QueueMode
from holdfast.ports import AdminApi, QueueView, WorkerView
from holdfast.server.auth.permissions import Scope
from holdfast.server.backend import Backend
from holdfast.server.http import examples
from holdfast.server.http.request import Answer, Asked, answer
from holdfast.server.http.routing import Handler, Route
from holdfast.server.http.shapes import ReasonBody
from holdfast.server.request_checks import checked_name

Mode = Literal["OPEN", "PAUSED", "DRAINING"]
_NAMES: dict[QueueMode, Mode] = {
    QueueMode.OPEN: "OPEN",
    QueueMode.PAUSED: "PAUSED",
    QueueMode.DRAINING: "DRAINING",
}
_MODES = {"pause": QueueMode.PAUSED, "resume": QueueMode.OPEN, "drain": QueueMode.DRAINING}
_SUMMARIES = {
    "pause": "Let it take jobs and grant none",
    "resume": "Let it take jobs and grant them",
    "drain": "Let it grant jobs and take none",
}


class Queue(msgspec.Struct, frozen=True):
    """One queue: jobs that could be granted, jobs not due yet, jobs that run, and the oldest wait.

    `types` has the jobs that could be granted by the type that a worker must know: the types with the most jobs.
    """

    name: str
    mode: Mode
    reason: str
    ready: int
    delayed: int
    running: int
    oldest_age_ms: int
    types: dict[str, int]


class Queues(msgspec.Struct, frozen=True):
    """Every queue that has jobs or is not open, by name."""

    queues: list[Queue]


class QueueModeSet(msgspec.Struct, frozen=True):
    """What the queue does now."""

    name: str
    mode: Mode
    reason: str


class Purged(msgspec.Struct, frozen=True):
    """How many jobs that waited were canceled."""

    name: str
    canceled: int


class Worker(msgspec.Struct, frozen=True):
    """One worker, as it last introduced itself."""

    worker_id: str
    types: list[str]
    queues: list[str]
    slots: int
    running: int
    is_draining: bool
    is_streaming: bool
    heard_ms_ago: int


class Workers(msgspec.Struct, frozen=True):
    """Every worker that is connected or was heard of lately."""

    workers: list[Worker]


class WorkerAsked(msgspec.Struct, frozen=True):
    """The worker was asked to finish and end."""

    worker_id: str


class QueueRoutes:
    """Queues and workers over HTTP."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def _admin(self) -> AdminApi:
        return self._backend.capability(self._backend.admin, Capability.ADMINISTRATION)

    async def all(self, asked: Asked) -> Answer:
        """Every queue, by name."""
        return answer(Queues([queue_shape(view) for view in await self._admin.queues()]))

    def setting(self, verb: str) -> Handler:
        """The handler that opens, pauses or drains a queue."""
        mode = _MODES[verb]

        async def handler(asked: Asked) -> Answer:
            queue, reason = checked_name("queue", asked.params["name"]), asked.content.reason
            await self._admin.set_queue_mode(queue, mode, reason)
            return answer(QueueModeSet(queue, _NAMES[mode], reason))

        return handler

    async def purge(self, asked: Asked) -> Answer:
        """Cancels what waits in a queue."""
        queue = checked_name("queue", asked.params["name"])
        return answer(Purged(queue, await self._admin.purge(queue, asked.content.reason)))

    async def workers(self, asked: Asked) -> Answer:
        """Every worker."""
        views = await self._admin.workers()
        return answer(Workers([_worker_shape(view) for view in views]))

    async def drain_worker(self, asked: Asked) -> Answer:
        """Asks a worker to finish and end."""
        worker_id = checked_name("worker_id", asked.params["id"])
        await self._admin.drain_worker(worker_id)
        return answer(WorkerAsked(worker_id), 202)


def _worker_shape(view: WorkerView) -> Worker:
    return Worker(
        view.worker_id,
        view.types,
        view.queues,
        view.slots,
        view.running,
        view.is_draining,
        view.is_streaming,
        view.heard_ms_ago,
    )


def queue_shape(view: QueueView) -> Queue:
    """One queue."""
    counts = (view.ready, view.delayed, view.running, view.oldest_age_ms)
    return Queue(view.name, _NAMES[view.mode], view.reason, *counts, view.types)


def routes(queues: QueueRoutes) -> list[Route]:
    """What this part of the table says."""
    return [
        Route(
            method="GET",
            path="/api/v1/queues",
            scope=Scope.READ,
            handler=queues.all,
            summary="Every queue",
            tag="queues",
            answers={200: Queues},
            problems=(501,),
        ),
        *(_setting(queues, verb) for verb in _MODES),
        Route(
            method="POST",
            path="/api/v1/queues/{name}/purge",
            scope=Scope.ADMIN,
            handler=queues.purge,
            summary="Cancel everything that waits in it",
            tag="queues",
            body=ReasonBody,
            is_body_optional=True,
            answers={200: Purged},
            problems=(413, 415, 501),
            examples=examples.REASON,
        ),
        Route(
            method="GET",
            path="/api/v1/workers",
            scope=Scope.READ,
            handler=queues.workers,
            summary="Every worker",
            tag="workers",
            answers={200: Workers},
            problems=(501,),
        ),
        Route(
            method="POST",
            path="/api/v1/workers/{id}/drain",
            scope=Scope.ADMIN,
            handler=queues.drain_worker,
            summary="Ask it to finish and end",
            tag="workers",
            answers={202: WorkerAsked},
            problems=(501,),
        ),
    ]


def _setting(queues: QueueRoutes, verb: str) -> Route:
    return Route(
        method="POST",
        path=f"/api/v1/queues/{{name}}/{verb}",
        scope=Scope.ADMIN,
        handler=queues.setting(verb),
        summary=_SUMMARIES[verb],
        tag="queues",
        body=ReasonBody,
        is_body_optional=True,
        answers={200: QueueModeSet},
        problems=(413, 415, 501),
        examples=examples.REASON,
    )
