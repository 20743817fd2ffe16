"""What every role answers to whoever looks after it: whether it lives, whether it works, and what it has counted."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from prometheus_client.core import Metric

from holdfast.observe.exposition import render
from holdfast.server.auth.permissions import Right, Scope
from holdfast.server.http.request import METRICS_TYPE, TEXT_TYPE, Answer, Asked, answer
from holdfast.server.http.routing import EVERYBODY, Handler, Route


class RoleHealth(msgspec.Struct, frozen=True):
    """What a role says of itself."""

    role: str
    is_ready: Callable[[], bool] = lambda: True
    #: What `/health` tells beside the role and whether it is ready.
    health: Callable[[], Mapping[str, Any]] = dict
    #: What it has counted.
    families: Callable[[], Iterable[Metric]] = tuple
    #: Called when it begins to stop: whoever is kept waiting should be answered now.
    on_stop: Callable[[], None] = lambda: None


class VitalRoutes:
    """The same routes for every role. That it lives depends on nobody else; that it is ready may."""

    def __init__(self, vitals: RoleHealth) -> None:
        self._vitals = vitals

    async def health(self, asked: Asked) -> Answer:
        """Whether it can do its work, and what it says beside that."""
        is_ready = self._vitals.is_ready()
        told = {"status": "ok" if is_ready else "not ready", "role": self._vitals.role, **self._vitals.health()}
        return answer(told, HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE)

    async def live(self, asked: Asked) -> Answer:
        """It answers, so it lives."""
        return Answer(HTTPStatus.OK, b"alive\n", TEXT_TYPE)

    async def ready(self, asked: Asked) -> Answer:
        """Whether it can do its work, in a word."""
        if self._vitals.is_ready():
            return Answer(HTTPStatus.OK, b"ready\n", TEXT_TYPE)
        return Answer(HTTPStatus.SERVICE_UNAVAILABLE, b"not ready\n", TEXT_TYPE, [(b"retry-after", b"1")])

    async def metrics(self, asked: Asked) -> Answer:
        """For Prometheus."""
        families = list(self._vitals.families())
        return Answer(HTTPStatus.OK, await asyncio.to_thread(render, families), METRICS_TYPE)

    def routes(self) -> list[Route]:
        """The rows of the table."""
        return [
            get("/health", self.health, "Whether it can do its work", EVERYBODY),
            get("/livez", self.live, "Whether it lives", EVERYBODY),
            get("/readyz", self.ready, "Whether it can do its work, in a word", EVERYBODY),
            get("/metrics", self.metrics, "For Prometheus"),
        ]


def get(path: str, handler: Handler, summary: str, right: Right = Scope.READ) -> Route:
    """A row for something that can be looked at."""
    return Route(method="GET", path=path, scope=right, handler=handler, summary=summary, tag="role")


def post(
    path: str,
    handler: Handler,
    body: Any,  # noqa: ANN401 - as Route says
    summary: str,
    right: Right = Scope.WORK,
) -> Route:
    """A row for something that is asked for by other roles; without a body, the defaults of its type are meant."""
    return Route(
        method="POST",
        path=path,
        scope=right,
        handler=handler,
        summary=summary,
        tag="role",
        body=body,
        is_body_optional=True,
    )
