"""Checks of every HTTP request in addition to its scope, and the headers of every response."""

from typing import Protocol

from holdfast.server.http.request import Head, Headers
from holdfast.server.http.routing import Route

_BEARER = "bearer "


class Shield(Protocol):
    """Checks a request before the guard, by its head alone."""

    def check(self, head: Head, route: Route) -> None:
        """Raises a `HoldfastError` if the request must be refused."""
        ...

    def token(self, head: Head) -> str:
        """Returns the token of the request; empty if there is none."""
        ...

    def headers(self) -> Headers:
        """Returns the headers of every response."""
        ...


class PlainShield:
    """Accepts every request; tokens come in the Authorization header only."""

    def check(self, head: Head, route: Route) -> None:
        """Accepts the request."""

    def token(self, head: Head) -> str:
        """Returns the token of `Authorization: Bearer ...`."""
        given = head.header(b"authorization")
        return given[len(_BEARER) :].strip() if given[: len(_BEARER)].lower() == _BEARER else ""

    def headers(self) -> Headers:
        """Returns the header that forbids browsers to guess types."""
        return _HEADERS


_HEADERS: Headers = [(b"x-content-type-options", b"nosniff")]
