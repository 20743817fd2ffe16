"""The routes of every role for monitoring: liveness, readiness and metrics."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from prometheus_client.core import Metric

from holdfast.observe.exposition import render
from holdfast.server.auth.permissions import Right, Scope
from holdfast.server.http.request import METRICS_TYPE, TEXT_TYPE, AdmittedRequest, HttpResponse, answer
from holdfast.server.http.routing import PUBLIC, Handler, Route


class RoleHealth(msgspec.Struct, frozen=True):
    """The health and the metrics of a role."""

    role: str
    is_ready: Callable[[], bool] = lambda: True
    #: Additional fields of `/health`, beside the role and its status.
    health: Callable[[], Mapping[str, Any]] = dict
    #: The metrics.
    families: Callable[[], Iterable[Metric]] = tuple
    #: Called when the role begins to stop: long polls should be answered now.
    on_stop: Callable[[], None] = lambda: None


class HealthRoutes:
    """The monitoring routes of every role. Liveness depends on no other process; readiness may."""

    def __init__(self, vitals: RoleHealth) -> None:
        self._vitals = vitals

    async def health(self, request: AdmittedRequest) -> HttpResponse:
        """Returns the readiness and the additional fields."""
        is_ready = self._vitals.is_ready()
        told = {"status": "ok" if is_ready else "not ready", "role": self._vitals.role, **self._vitals.health()}
        return answer(told, HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE)

    async def live(self, request: AdmittedRequest) -> HttpResponse:
        """Responds while the process lives."""
        return HttpResponse(HTTPStatus.OK, b"alive\n", TEXT_TYPE)

    async def ready(self, request: AdmittedRequest) -> HttpResponse:
        """Returns the readiness as text."""
        if self._vitals.is_ready():
            return HttpResponse(HTTPStatus.OK, b"ready\n", TEXT_TYPE)
        return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, b"not ready\n", TEXT_TYPE, [(b"retry-after", b"1")])

    async def metrics(self, request: AdmittedRequest) -> HttpResponse:
        """Returns the metrics for Prometheus."""
        families = list(self._vitals.families())
        return HttpResponse(HTTPStatus.OK, await asyncio.to_thread(render, families), METRICS_TYPE)

    def routes(self) -> list[Route]:
        """Returns the monitoring routes."""
        return [
            get("/health", self.health, "Readiness, as JSON", PUBLIC),
            get("/livez", self.live, "Liveness", PUBLIC),
            get("/readyz", self.ready, "Readiness, as text", PUBLIC),
            get("/metrics", self.metrics, "Metrics for Prometheus"),
        ]


def get(path: str, handler: Handler, summary: str, right: Right = Scope.READ) -> Route:
    """Returns a route for reading."""
    return Route(method="GET", path=path, scope=right, handler=handler, summary=summary, tag="role")


def post(
    path: str,
    handler: Handler,
    body: Any,  # noqa: ANN401 - as Route says
    summary: str,
    right: Right = Scope.WORK,
) -> Route:
    """Returns a route for requests of other roles; without a body, the defaults of its type apply."""
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
