"""`/api/v1/queues` and `/api/v1/workers`: reading and changing queues and workers."""

from typing import Literal

import msgspec

from holdfast.core.capabilities import Capability
from holdfast.core.model import QueueMode
from holdfast.ports import AdminApi, QueueView, WorkerView
from holdfast.server.auth.permissions import Scope
from holdfast.server.backend import Backend
from holdfast.server.http import examples
from holdfast.server.http.request import AdmittedRequest, HttpResponse, answer
from holdfast.server.http.routing import Handler, Route
from holdfast.server.http.schemas import ReasonBody
from holdfast.server.request_checks import checked_name

Mode = Literal["OPEN", "PAUSED", "DRAINING"]
_NAMES: dict[QueueMode, Mode] = {
    QueueMode.OPEN: "OPEN",
    QueueMode.PAUSED: "PAUSED",
    QueueMode.DRAINING: "DRAINING",
}
_MODES = {"pause": QueueMode.PAUSED, "resume": QueueMode.OPEN, "drain": QueueMode.DRAINING}
_SUMMARIES = {
    "pause": "Pause a queue: it accepts jobs and grants none",
    "resume": "Resume a queue: it accepts jobs and grants them",
    "drain": "Drain a queue: it grants jobs and accepts none",
}


class Queue(msgspec.Struct, frozen=True):
    """One queue: jobs that can be granted, jobs not due yet, running jobs, and the oldest wait.

    `types` counts the jobs that can be granted by the type that a worker must know: the types with the most jobs.
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


class QueueModeSetResource(msgspec.Struct, frozen=True):
    """The new mode of the queue."""

    name: str
    mode: Mode
    reason: str


class Purged(msgspec.Struct, frozen=True):
    """The number of waiting jobs that were canceled."""

    name: str
    canceled: int


class WorkerResource(msgspec.Struct, frozen=True):
    """One worker, as in its last introduction."""

    worker_id: str
    types: list[str]
    queues: list[str]
    slots: int
    running: int
    is_draining: bool
    is_streaming: bool
    heard_ms_ago: int


class Workers(msgspec.Struct, frozen=True):
    """Every worker that is connected or was so recently."""

    workers: list[WorkerResource]


class WorkerAsked(msgspec.Struct, frozen=True):
    """The worker that was requested to finish its jobs and exit."""

    worker_id: str


class QueueRoutes:
    """Queues and workers over HTTP."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def _admin(self) -> AdminApi:
        return self._backend.capability(self._backend.admin, Capability.ADMINISTRATION)

    async def all(self, request: AdmittedRequest) -> HttpResponse:
        """Returns every queue, by name."""
        return answer(Queues([queue_shape(view) for view in await self._admin.queues()]))

    def setting(self, verb: str) -> Handler:
        """Returns the handler that opens, pauses or drains a queue."""
        mode = _MODES[verb]

        async def handler(request: AdmittedRequest) -> HttpResponse:
            queue, reason = checked_name("queue", request.params["name"]), request.content.reason
            await self._admin.set_queue_mode(queue, mode, reason)
            return answer(QueueModeSetResource(queue, _NAMES[mode], reason))

        return handler

    async def purge(self, request: AdmittedRequest) -> HttpResponse:
        """Cancels all waiting jobs of a queue."""
        queue = checked_name("queue", request.params["name"])
        return answer(Purged(queue, await self._admin.purge(queue, request.content.reason)))

    async def workers(self, request: AdmittedRequest) -> HttpResponse:
        """Returns every worker."""
        views = await self._admin.workers()
        return answer(Workers([_worker_shape(view) for view in views]))

    async def drain_worker(self, request: AdmittedRequest) -> HttpResponse:
        """Requests a worker to finish its jobs and exit."""
        worker_id = checked_name("worker_id", request.params["id"])
        await self._admin.drain_worker(worker_id)
        return answer(WorkerAsked(worker_id), 202)


def _worker_shape(view: WorkerView) -> WorkerResource:
    return WorkerResource(
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
    """Converts one queue."""
    counts = (view.ready, view.delayed, view.running, view.oldest_age_ms)
    return Queue(view.name, _NAMES[view.mode], view.reason, *counts, view.types)


def routes(queues: QueueRoutes) -> list[Route]:
    """Returns the routes of this module."""
    return [
        Route(
            method="GET",
            path="/api/v1/queues",
            scope=Scope.READ,
            handler=queues.all,
            summary="List the queues",
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
            summary="Cancel all waiting jobs of a queue",
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
            summary="List the workers",
            tag="workers",
            answers={200: Workers},
            problems=(501,),
        ),
        Route(
            method="POST",
            path="/api/v1/workers/{id}/drain",
            scope=Scope.ADMIN,
            handler=queues.drain_worker,
            summary="Request a worker to finish its jobs and exit",
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
        answers={200: QueueModeSetResource},
        problems=(413, 415, 501),
        examples=examples.REASON,
    )
