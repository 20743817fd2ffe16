"""Routes: the method, path, scope, input and output of each, and the router that finds one by its path.

The routes themselves are in `routes()` of the modules that `application.py` imports. There is no other list: the
application takes the handlers from it, the guard the scopes, and the OpenAPI document the descriptions. A route without
a scope cannot be added.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from holdfast.errors import InvalidArgumentError
from holdfast.server.auth.permissions import OpenAccess, Right, Scope
from holdfast.server.http.request import AdmittedRequest, HttpResponse, StreamedResponse

Handler = Callable[[AdmittedRequest], Awaitable[HttpResponse | StreamedResponse]]


#: In place of a scope: needs no token, such as probes.
PUBLIC = OpenAccess.PUBLIC


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table."""

    method: str
    path: str
    scope: Right
    handler: Handler
    summary: str
    #: The section of the API.
    tag: str = "jobs"
    query: type[msgspec.Struct] | None = None
    #: The type of the body, if there is one.
    body: Any = None
    is_body_optional: bool = False
    #: Other types of the body, by the name in it that selects them.
    bodies_by_name: Mapping[str, Any] = {}
    #: The types of successful responses by status, several as a tuple; None: no body, or no JSON.
    answers: Mapping[int, Any] = {}
    #: The content type of successful responses.
    content: str = "application/json"
    #: Whether the response is a stream, which ends when the caller loses its permission.
    is_stream: bool = False
    #: Statuses of problems in addition to those of every route.
    problems: tuple[int, ...] = ()
    examples: Mapping[str, Any] = {}
    #: A short form: it is served, but not part of the OpenAPI document.
    is_short_form: bool = False


class RouteMatch(msgspec.Struct, frozen=True):
    """The routes of a path by method, and the parameters in the path."""

    methods: Mapping[str, Route]
    params: Mapping[str, str]


class Router:
    """Finds the route of a request."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._fixed: dict[str, dict[str, Route]] = {}
        self._shaped: dict[int, list[tuple[tuple[str, ...], dict[str, Route]]]] = {}
        for route in self.routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        if not isinstance(route.scope, Scope) and route.scope is not PUBLIC:
            raise TypeError(f"{route.method} {route.path} names no scope")
        methods = self._methods(route.path)
        if route.method in methods:
            raise TypeError(f"{route.method} {route.path} is in the table twice")
        methods[route.method] = route

    def _methods(self, path: str) -> dict[str, Route]:
        if "{" not in path:
            return self._fixed.setdefault(path, {})
        parts = tuple(path.split("/"))
        shaped = self._shaped.setdefault(len(parts), [])
        for known, methods in shaped:
            if known == parts:
                return methods
        shaped.append((parts, {}))
        return shaped[-1][1]

    def find(self, path: str) -> RouteMatch | None:
        """Returns the routes of a path, with or without a slash at its end."""
        methods = self._fixed.get(path)
        if methods is not None:
            return RouteMatch(methods, _NOTHING)
        if path.endswith("/"):
            path = path.removesuffix("/")
            methods = self._fixed.get(path)
            if methods is not None:
                return RouteMatch(methods, _NOTHING)
        parts = path.split("/")
        for shape, methods in self._shaped.get(len(parts), ()):
            params = _params(shape, parts)
            if params is not None:
                return RouteMatch(methods, params)
        return None


_NOTHING: Mapping[str, str] = {}


def _params(shape: tuple[str, ...], parts: list[str]) -> dict[str, str] | None:
    params: dict[str, str] = {}
    for want, part in zip(shape, parts, strict=True):
        if want.startswith("{"):
            if not part:
                return None
            params[want[1:-1]] = _decoded(part)
        elif want != part:
            return None
    return params


def _decoded(part: str) -> str:
    if "%" not in part:
        return part
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise InvalidArgumentError("the path must be UTF-8", reason="PATH_INVALID") from None
