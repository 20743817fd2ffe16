"""The table of routes: every route has a scope and matches its requests."""

from typing import Any, cast

import msgspec
import pytest

from holdfast.errors import PermissionDeniedError
from holdfast.ports import JobApi
from holdfast.server.auth.permissions import Caller, CallerSession, Ended, Right, Scope
from holdfast.server.backend import Backend
from holdfast.server.http.application import Application
from holdfast.server.http.request import AdmittedRequest, Head, HttpResponse
from holdfast.server.http.routing import PUBLIC, Route, Router

PUBLIC_PATHS = {"/livez", "/readyz", "/openapi.json", "/api/v1/session"}
#: No route may use it.
BACKEND = Backend(cast("JobApi", None))


class RefusingGuard:
    """A guard that refuses every caller and records the requested scopes."""

    def __init__(self) -> None:
        self.request: list[Scope] = []

    def recognise(self, token: str, right: Right) -> Caller:
        raise PermissionDeniedError("every caller is refused")

    def charge(self, caller: Caller | None, token: str, peer: str, scope: Scope) -> None:
        raise PermissionDeniedError("every caller is refused")

    def admit(self, token: str, peer: str, scope: Scope) -> Caller:
        self.request.append(scope)
        raise PermissionDeniedError("every caller is refused")

    def enter(self, token: str, peer: str, right: Right, ended: Ended) -> CallerSession:
        self.request.append(cast("Scope", right))
        raise PermissionDeniedError("every caller is refused")


async def nothing(_: AdmittedRequest) -> HttpResponse:
    return HttpResponse(204)


def row(path: str, method: str = "GET", scope: Any = Scope.READ) -> Route:  # noqa: ANN401 - also invalid scopes
    return Route(method=method, path=path, scope=scope, handler=nothing, summary="")


async def status_of(application: Application, method: str, path: str) -> int:
    """Returns the status for a request without a body."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
    admitted = application.admit(Head(method, path, headers, ""))
    answer = admitted if isinstance(admitted, HttpResponse) else await application.answer(admitted)
    assert answer is not None
    return answer.status


def test_row_without_a_scope_is_refused() -> None:
    """A route without a scope is refused."""
    with pytest.raises(TypeError, match="names no scope"):
        Router([row("/x", scope=None)])
    with pytest.raises(TypeError):
        Route(method="GET", path="/x", handler=nothing, summary="")  # type: ignore[call-arg]


def test_row_that_is_there_twice_is_refused() -> None:
    """A route that is listed twice is refused."""
    with pytest.raises(TypeError, match="twice"):
        Router([row("/x/{a}"), row("/x/{a}")])


async def test_every_route_asks_the_guard_before_it_reads_the_body() -> None:
    """Every protected route calls the guard with its own scope before it reads the body."""
    guard = RefusingGuard()
    application = Application(BACKEND, guard)
    for route in application.router.routes:
        if route.scope is PUBLIC:
            assert route.path in PUBLIC_PATHS or route.path == "/" or route.path.startswith("/assets/")
            continue
        path = route.path.replace("{id}", "x").replace("{name}", "x")
        assert await status_of(application, route.method, path) == 403, route.path
        assert guard.request.pop() is route.scope
    assert await status_of(application, "HEAD", "/api/v1/jobs") == 403


def test_only_routes_that_change_nothing_accept_the_scope_read() -> None:
    """A route that changes data does not accept the scope READ."""
    looking = {"/api/v1/schedule-preview"}
    for route in Application(BACKEND).router.routes:
        if isinstance(route.scope, Scope):
            assert (route.scope is Scope.READ) == (route.method == "GET" or route.path in looking), route.path


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/x", {}),
        ("/x/", {}),
        ("/x/a", {"id": "a"}),
        ("/x/a/", {"id": "a"}),
        ("/x/fixed", {}),
        ("/x/a/do", {"id": "a"}),
        ("/x/a%2Fb", {"id": "a/b"}),
        ("/x/%C3%A9", {"id": "é"}),
        ("/x/..", {"id": ".."}),
    ],
)
def test_path_finds_its_row(path: str, params: dict[str, str]) -> None:
    """Fixed paths match before patterns, and path segments are decoded one by one."""
    router = Router([row("/x"), row("/x/fixed"), row("/x/{id}"), row("/x/{id}/do")])
    found = router.find(path)
    assert found is not None
    assert found.params == params


@pytest.mark.parametrize("path", ["/", "", "/y", "/x//", "//x", "/x//do", "/x/a/do/more", "/X", "/" * 8_000])
def test_path_of_nothing_finds_nothing(path: str) -> None:
    """A path with an empty segment or without a route matches nothing."""
    assert Router([row("/x/{id}"), row("/x/{id}/do")]).find(path) is None


def test_document_names_the_scope_of_each_route() -> None:
    """The OpenAPI document has every route with its scope, and an example for each body."""
    application = Application(BACKEND)
    document = next(route for route in application.router.routes if route.path == "/openapi.json")
    holder: Any = document.handler.__self__  # type: ignore[attr-defined]
    paths = msgspec.json.decode(holder.document)["paths"]
    shown = [route for route in application.router.routes if not route.is_short_form]
    assert {(path, method.upper()) for path, methods in paths.items() for method in methods} == {
        (route.path, route.method) for route in shown
    }
    for route in shown:
        operation = paths[route.path][route.method.lower()]
        assert operation["x-holdfast-scope"] == route.scope.value
        if route.body is not None and route.method == "POST":
            assert operation["requestBody"]["content"]["application/json"]["examples"], route.path
